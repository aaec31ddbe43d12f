"""A shop that is asked for twice what it can do: its site, its visitors, and who watches them."""
