import argparse
import glob

import torch
from PIL import Image
from torchvision import transforms as T

from finetuned import FineTuned

parser = argparse.ArgumentParser()
parser.add_argument('--weights', default=None)
parser.add_argument('--pattern', default='*.jpg')

if __name__ == '__main__':
    args = parser.parse_args()
    model = FineTuned(weights=args.weights)
    model.eval()
    tf = T.Compose([T.Resize(72), T.CenterCrop(64), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    for path in sorted(glob.glob(args.pattern)):
        image = tf(Image.open(path).convert('RGB')).unsqueeze(0)
        with torch.no_grad():
            print(path, model(image).argmax(1).item())
