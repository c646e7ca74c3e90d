import pandas as pd
import torch
from torch.utils.data import DataLoader

from dataset import Images, valid_aug
from net import Net


def inference(model, loader, device):
    model.eval()
    preds = []
    with torch.no_grad():
        for images, _ in loader:
            logits = model(images.to(device))
            preds += logits.softmax(1).cpu().tolist()
    return preds


if __name__ == "__main__":
    test = pd.read_csv("test.csv")
    model = Net().to("cpu")
    loader = DataLoader(Images(list(test.file), [0] * len(test), valid_aug), batch_size=32)
    pd.DataFrame(inference(model, loader, "cpu")).to_csv("submission.csv")
