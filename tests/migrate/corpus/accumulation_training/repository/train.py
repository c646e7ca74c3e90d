import torch
from torch import nn

accum_steps = 4


class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        return self.fc(self.conv(x).mean((2, 3)))


net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
train_loader = torch.load('train.pt')

net.train()
optimizer.zero_grad()
for i, (x, y) in enumerate(train_loader):
    loss = criterion(net(x), y) / accum_steps
    loss.backward()
    if (i + 1) % accum_steps == 0 or i + 1 == len(train_loader):
        optimizer.step()
        optimizer.zero_grad()
torch.save(net.state_dict(), 'net.pth')
