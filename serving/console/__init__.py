"""The console: one page for people, served at /, which draws the live stats."""
