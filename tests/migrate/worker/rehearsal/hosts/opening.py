"""What the servers' classes of these tests begin with: an image becomes the input of a small network."""

OPENING = """import base64, io
import torch
from PIL import Image


def opened(data):
    image = Image.open(io.BytesIO(data)).convert("RGB").resize((8, 8))
    return torch.tensor(list(image.getdata())).float().reshape(8, 8, 3).permute(2, 0, 1)[None] / 255


NET = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3))
"""

DEAF = """
import socket, sys
def listen(*_):
    sys.exit("it listens")
socket.socket.listen = listen
"""
"""What a script's run is recorded by ends it where it listens, as a service does."""
