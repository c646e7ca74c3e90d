import argparse

import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor

from zoo import *

parser = argparse.ArgumentParser()
parser.add_argument('image')
parser.add_argument('--model', default='NarrowNet')
args = parser.parse_args()

net = globals()[args.model](num_classes=3)
net.eval()

transform = Compose([Resize(36), CenterCrop(32), ToTensor()])
batch = transform(Image.open(args.image).convert('RGB')).unsqueeze(0)

with torch.no_grad():
    probabilities = net(batch).softmax(1)[0]
for name, p in zip(['cat', 'dog', 'fox'], probabilities.tolist()):
    print(f'{name}: {p:.3f}')
