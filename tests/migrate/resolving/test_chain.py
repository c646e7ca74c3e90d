"""The steps by which a script comes to its model."""

from headrace.migrate.resolving.resolve import resolve


def test_what_moves_images_to_a_device_is_no_link_of_the_chain(repository):
    surveyed = repository(
        net="""
            import torch.nn as nn

            class Net(nn.Module):
                def __init__(self, classes=10):
                    super().__init__()
                    self.conv = nn.Conv2d(3, 4, 3)
                    self.fc = nn.Linear(4, classes)

                def forward(self, x):
                    return self.fc(self.conv(x).mean((2, 3)))

            def small():
                return Net()
        """,
        serve="""
            import torch
            import net

            device = torch.device("cpu")
            for images, targets in loader:
                model = net.small()
                if len(images):
                    images = images.to(device)
                    model = model.to(device)
                model.eval()
                out = model(images)
        """,
    )
    steps = [step.text for step in resolve(surveyed).chain if step.kind == "wrapper"]
    assert steps == ["model = model.to(device)"]


def test_a_link_of_the_chain_says_from_which_file_it_is(repository):
    surveyed = repository(
        epoch="""
            import torch

            def evaluate(model, loader):
                model.eval()
                with torch.no_grad():
                    for images, labels in loader:
                        print((model(images).argmax(1) == labels).sum())
        """,
        parts="""
            import torch
            from torch import nn
            from epoch import evaluate

            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.layer = nn.Linear(width, 3)

                def forward(self, x):
                    return self.layer(x.flatten(1))

            def run(loader):
                network = Net(width=12)
                evaluate(network, loader)
        """,
        main="""
            import torch
            from parts import run

            if __name__ == "__main__":
                run(torch.utils.data.DataLoader([]))
        """,
    )
    steps = [step for step in resolve(surveyed, entry="main.py").chain if step.text.startswith("network")]
    assert [(step.path, step.line) for step in steps] == [("parts.py", 15)]


def test_what_a_served_file_does_as_it_is_imported_is_told_to_stand_there(repository):
    """A page that imports the function which classifies, from a file that builds its models at the top."""
    surveyed = repository(
        parts="""
            import torch
            from torch import nn

            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.layer = nn.Linear(width, 3)

                def forward(self, x):
                    return self.layer(x.flatten(1))

            def load(width):
                made = Net(width)
                made.load_state_dict(torch.load(f"{width}.pth"))
                return made

            small = load(12)
            wide = load(48)

            def answer(image):
                with torch.no_grad():
                    first = small(image[:, :, :2, :2])
                    return first.softmax(1), wide(image).softmax(1)
        """,
        main="""
            from parts import answer

            if __name__ == "__main__":
                answer(None)
        """,
    )
    resolved = resolve(surveyed, entry="main.py")
    steps = [(step.path, step.line, step.text) for step in resolved.chain]
    assert ("parts.py", 15, "made.load_state_dict(torch.load(f'{width}.pth'))") in steps
    assert ("parts.py", 19, "wide = load(48)") in steps
    (told,) = [item for item in resolved.findings if "is taken for the model" in item.message]
    assert (told.path, told.line) == ("parts.py", 24)
