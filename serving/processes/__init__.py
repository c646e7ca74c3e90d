"""Front ends in processes of their own, one engine process that runs the models, and a supervisor over them."""
