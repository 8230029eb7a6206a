"""The only program of ours that writes to the database. It ends, returns or cancels rows that no container can move."""
