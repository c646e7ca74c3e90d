import torch
from net import Net

model = Net()
model.eval()
total = 0
with torch.no_grad():
    for images, labels in torch.load("test.pt"):
        total += (model(images).argmax(1) == labels).sum().item()
print("""total:
%d""" % total)
