"""What a deployed shop has beyond the one on a desk."""
