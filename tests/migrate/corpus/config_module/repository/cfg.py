NUM_CLASSES = 15
SIZE = 80
WEIGHTS = "runs/best.pt"
WIDTH = 6
