from torch import nn


class MLP(nn.Module):
    def __init__(self, input_dim=784, output_dim=10):
        super().__init__()
        self.input_fc = nn.Linear(input_dim, 32)
        self.output_fc = nn.Linear(32, output_dim)

    def forward(self, x):
        x = x.view(x.shape[0], -1)
        h = self.input_fc(x).relu()
        return self.output_fc(h), h
