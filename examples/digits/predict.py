import argparse

import torch
from PIL import Image

from data import CLASSES, eval_transform
from model import MODELS, build_model


def load_model(arch, checkpoint_path, device):
    model = build_model(arch, num_classes=len(CLASSES))
    checkpoint = torch.load(checkpoint_path, map_location="cpu")
    state_dict = {k.replace("module.", "", 1): v for k, v in checkpoint["state_dict"].items()}
    model.load_state_dict(state_dict)
    return model.to(device).eval()


def main():
    parser = argparse.ArgumentParser(description="Classify images of handwritten digits")
    parser.add_argument("images", nargs="+", metavar="IMAGE")
    parser.add_argument("--arch", default="smallcnn", choices=sorted(MODELS))
    parser.add_argument("--checkpoint", default="checkpoints/best.pth")
    parser.add_argument("--topk", default=3, type=int)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(args.arch, args.checkpoint, device)

    for path in args.images:
        image = eval_transform(Image.open(path).convert("L")).unsqueeze(0).to(device)
        with torch.no_grad():
            output = model(image)
        probs, indices = torch.softmax(output, dim=1)[0].topk(args.topk)
        print(f"{path}: " + ", ".join(f"{CLASSES[i]} ({p:.1%})" for p, i in zip(probs.tolist(), indices.tolist(), strict=True)))


if __name__ == "__main__":
    main()
