"""The pages of the dashboard in a real browser: they are whole, readable for everybody, and quiet about secrets."""
