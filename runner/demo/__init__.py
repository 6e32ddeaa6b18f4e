"""The demo model: a small looped network that adds and subtracts, and the script that trains it."""
