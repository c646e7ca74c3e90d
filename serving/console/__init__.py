"""The console: one page for people, served at /, and the figures it draws."""
