import torch
<<<<<<< HEAD
model = a()
=======
model = b()
>>>>>>> theirs
