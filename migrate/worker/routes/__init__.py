"""The routes of an application: what they answer, by which template, and the proof. Only ever run in a subprocess."""
