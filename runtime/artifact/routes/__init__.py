"""Routes of an application that a package answers in its place: how each takes an image, and a template of its answer."""
