"""WebShop: find and buy the product that an instruction describes (arXiv 2207.01206)."""
