"""The test kit that the package ships, used as its users would."""
