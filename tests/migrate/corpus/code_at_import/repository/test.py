import torch
from model import net

net.eval()
ok = 0
for x, y in torch.load('test.pt'):
    with torch.no_grad():
        out = net(x)
    ok += (out.argmax(1) == y).sum().item()
print(ok)
