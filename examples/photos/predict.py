import argparse
import json

import torch
from PIL import Image

import resnet
from dataset import CLASSES
from preprocess import preprocess


def main():
    parser = argparse.ArgumentParser(description="Print the five likeliest classes of each photo as a line of JSON")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--arch", default="resnet50", choices=["resnet18", "resnet50", "resnet101"])
    parser.add_argument("--weights", default="weights/resnet50.pth")
    args = parser.parse_args()

    model = resnet.__dict__[args.arch](num_classes=len(CLASSES))
    model.load_state_dict(torch.load(args.weights, map_location="cpu")["state_dict"])
    model.eval()

    for path in args.images:
        x = preprocess(Image.open(path)).unsqueeze(0)
        with torch.no_grad():
            probs = model(x).softmax(dim=1)[0]
        top = probs.topk(5)
        classes = [
            {"class": CLASSES[i], "probability": round(p, 4)}
            for p, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        print(json.dumps({"image": path, "top5": classes}))


if __name__ == "__main__":
    main()
