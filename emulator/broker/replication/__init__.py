"""The links from this region to the others, and what travels over them."""
