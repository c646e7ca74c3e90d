import argparse

import cv2
import numpy as np
import torch

from caffenet import CaffeNet

MEAN = np.array([103.939, 116.779, 123.68], dtype=np.float32)


def preprocess(path):
    img = cv2.imread(path)
    img = cv2.resize(img, (64, 64)).astype(np.float32) - MEAN
    return torch.from_numpy(img.transpose(2, 0, 1)).unsqueeze(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--img', required=True)
    args = parser.parse_args()
    model = CaffeNet()
    model.eval()
    with torch.no_grad():
        scores = model(preprocess(args.img))
    print(scores.argmax(1).item())


if __name__ == '__main__':
    main()
