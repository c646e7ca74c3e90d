import argparse

import torch
from torch.utils.data import DataLoader

from dataset import ImageDataset
from model import EfficientNetLite0

parser = argparse.ArgumentParser(description="Evaluate EfficientNet-Lite0 on labeled images")
parser.add_argument("--data", default="data/val", help="folder with LABEL/*.jpg")
parser.add_argument("--weights", default="weights/efficientnet_lite0.pth")
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--workers", default=0, type=int)


def main():
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    model = EfficientNetLite0()
    model.load_state_dict(torch.load(args.weights, map_location="cpu"))
    model = model.to(device)
    model.eval()

    loader = DataLoader(ImageDataset(args.data), batch_size=args.batch_size, num_workers=args.workers)

    top1 = 0
    top5 = 0
    total = 0
    with torch.no_grad():
        for images, target in loader:
            images = images.to(device)
            target = target.to(device)

            output = model(images)
            _, best = output.topk(5, 1)
            correct = best.eq(target.unsqueeze(1))
            top1 += correct[:, 0].sum().item()
            top5 += correct.any(1).sum().item()
            total += target.size(0)

    print(f"Top-1 accuracy: {100.0 * top1 / total:.2f}% ({top1}/{total})")
    print(f"Top-5 accuracy: {100.0 * top5 / total:.2f}% ({top5}/{total})")


if __name__ == "__main__":
    main()
