import torch
from torchvision import datasets, transforms

from net import Net
from padding import SquarePad

val_transform = transforms.Compose([
    SquarePad(),
    transforms.Resize(64),
    transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
])

if __name__ == '__main__':
    net = Net()
    net.load_state_dict(torch.load('weights/net.pth')['model'])
    net.eval()
    dataset = datasets.ImageFolder('data/val', val_transform)
    n = 0
    for x, y in torch.utils.data.DataLoader(dataset, 8):
        with torch.no_grad():
            n += int((net(x).max(1).indices == y).sum())
    print(n / len(dataset))
