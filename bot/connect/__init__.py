"""How a person connects an account: a link, its pages, and what is kept."""
