import argparse

import torch
from torch.utils.data import DataLoader

import resnet
from dataset import CLASSES, PhotoDataset

parser = argparse.ArgumentParser(description="Evaluate a ResNet on the test photos")
parser.add_argument("--data", default="data", help="folder with fit/ and test/")
parser.add_argument("--arch", default="resnet50", choices=["resnet18", "resnet50", "resnet101"])
parser.add_argument("--weights", default="weights/resnet50.pth")
parser.add_argument("--batch-size", default=32, type=int)
parser.add_argument("--workers", default=0, type=int)
parser.add_argument("--print-freq", default=4, type=int, help="batches between progress lines")


def main():
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    model = resnet.__dict__[args.arch](num_classes=len(CLASSES))
    checkpoint = torch.load(args.weights, map_location="cpu")
    model.load_state_dict(checkpoint["state_dict"])
    model = model.to(device)
    model.eval()

    test_set = PhotoDataset(args.data, "test")
    test_loader = DataLoader(test_set, batch_size=args.batch_size, num_workers=args.workers)

    correct = 0
    total = 0
    with torch.no_grad():
        for i, (images, target) in enumerate(test_loader):
            images = images.to(device)
            target = target.to(device)

            output = model(images)
            _, predicted = output.max(1)
            correct += predicted.eq(target).sum().item()
            total += target.size(0)

            if (i + 1) % args.print_freq == 0:
                print(f"Test: [{i + 1}/{len(test_loader)}]  acc@1 {100.0 * correct / total:.2f}", flush=True)

    print(f"Top-1 accuracy: {100.0 * correct / total:.2f}% ({correct}/{total})")


if __name__ == "__main__":
    main()
