"""`headrace predict`: a few images, answered here as a server would answer them."""
