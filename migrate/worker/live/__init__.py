"""The user's model taken live: what a script calls with images, and the model itself, its task, labels and transform."""
