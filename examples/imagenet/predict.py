import argparse
import json

import torch
from PIL import Image

from dataset import LABELS
from model import EfficientNetLite0
from preprocess import preprocess


def main():
    parser = argparse.ArgumentParser(description="Print the five likeliest ImageNet classes of each image as a line of JSON")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--weights", default="weights/efficientnet_lite0.pth")
    args = parser.parse_args()

    model = EfficientNetLite0()
    model.load_state_dict(torch.load(args.weights, map_location="cpu"))
    model.eval()

    for path in args.images:
        x = preprocess(Image.open(path)).unsqueeze(0)
        with torch.no_grad():
            probs = model(x).softmax(dim=1)[0]
        top = probs.topk(5)
        classes = [
            {"class": LABELS[i], "probability": round(p, 4)}
            for p, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        print(json.dumps({"image": path, "top5": classes}))


if __name__ == "__main__":
    main()
