import argparse

import torch
from torch.utils.data import DataLoader

from data import CLASSES, DigitsDataset, eval_transform
from model import MODELS, build_model


def main():
    parser = argparse.ArgumentParser(description="Evaluate a trained digit classifier on the test set")
    parser.add_argument("--data", default="data")
    parser.add_argument("--arch", default="smallcnn", choices=sorted(MODELS))
    parser.add_argument("--checkpoint", default="checkpoints/best.pth")
    parser.add_argument("--batch-size", default=64, type=int)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = DigitsDataset(args.data, "test", eval_transform)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=False)

    model = build_model(args.arch, num_classes=len(CLASSES))
    checkpoint = torch.load(args.checkpoint, map_location="cpu")
    # checkpoints saved from nn.DataParallel have a "module." prefix
    state_dict = {k.replace("module.", "", 1): v for k, v in checkpoint["state_dict"].items()}
    model.load_state_dict(state_dict)
    model.to(device)
    model.eval()

    correct, total = 0, 0
    with torch.no_grad():
        for images, targets in loader:
            images, targets = images.to(device), targets.to(device)
            outputs = model(images)
            pred = outputs.argmax(dim=1)
            correct += (pred == targets).sum().item()
            total += targets.size(0)

    print(f"Top-1 accuracy: {100.0 * correct / total:.2f}% ({correct}/{total})")


if __name__ == "__main__":
    main()
