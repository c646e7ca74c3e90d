import torch
from torch.utils.data import DataLoader

from data import Shapes
from net import Net


def main():
    net = Net(num_classes=len(Shapes.classes))
    net.load_state_dict(torch.load("shapes.pth"))
    net.eval()
    per_class = {name: 0 for name in Shapes.classes}
    for images, targets in DataLoader(Shapes("test.pt"), batch_size=10):
        with torch.no_grad():
            guesses = net(images).argmax(1)
        for guess, target in zip(guesses.tolist(), targets.tolist()):
            per_class[Shapes.classes[target]] += guess == target
    print(per_class)


if __name__ == "__main__":
    main()
