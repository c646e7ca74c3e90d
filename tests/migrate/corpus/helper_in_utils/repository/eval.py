import torch

from lib.net import SimpleNet
from lib.utils import evaluate

if __name__ == "__main__":
    network = SimpleNet()
    network.load_state_dict(torch.load("simple.pth", map_location="cpu"))
    dataset = torch.load("val.pt")
    print(evaluate(network, torch.utils.data.DataLoader(dataset, batch_size=64)))
