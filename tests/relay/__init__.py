"""The relay room: releasing, publishing, sending again, leading, hosting, purging."""
