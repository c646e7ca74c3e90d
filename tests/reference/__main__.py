"""`python -m tests.reference` writes the pages of docs/reference and docs/llms.txt anew; `make reference` is that."""

from tests.reference.generated import GENERATED, ROOT

for path, make in GENERATED.items():
    (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / path).write_text(make())
    print(path)
