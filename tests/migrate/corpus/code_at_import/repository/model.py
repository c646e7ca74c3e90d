import torch
import torch.nn as nn

print('importing the model')
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.fc = nn.Linear(3, classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


net = Net()
print(net(torch.randn(1, 3, 8, 8)).shape)
