import importlib
import sys

import pytest

from headrace.migrate.worker.rehearsal.edges.pages import stand_in

NET = """
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        print(tuple(x.shape))
        return x.mean((2, 3))
"""
STREAMLIT = """
import numpy as np, torch
import streamlit as st
from PIL import Image
from net import Net

st.set_page_config(page_title="Cats")

@st.cache_resource
def load():
    return Net().eval()

@st.cache_data(show_spinner=False)
def names(count=3):
    return list(range(count))

with st.sidebar:
    kind = st.selectbox("Model", ["small", "large"])
left, right = st.columns(2)
threshold = st.slider("Threshold", 0.0, 1.0, 0.5)
if "runs" not in st.session_state:
    st.session_state.runs = 0
uploaded = st.file_uploader("Choose an image", type=["csv", "png", "jpg"])
if uploaded is None:
    st.stop()
image = Image.open(uploaded).convert("RGB")
left.image(image, caption="yours", use_column_width=True)
if st.button("Clear"):
    st.rerun()
if st.button("Classify"):
    with st.spinner("..."), torch.no_grad():
        out = load()(torch.tensor(np.asarray(image)).permute(2, 0, 1)[None].float())
    st.session_state["runs"] += 1
    print(kind, threshold, names(), st.session_state.runs, uploaded.name)
    right.write(out)
"""
CANVAS = """
import numpy as np, torch
import streamlit as st
import streamlit_own
from streamlit_drawable_canvas import st_canvas
from streamlit_option_menu import option_menu
from net import Net
kind = option_menu("Menu", ["Draw", "About"], icons=["pen", "info"], default_index=0)
drawn = st_canvas(stroke_width=15, stroke_color="white", height=280, width=300, drawing_mode="freedraw", key="canvas")
if drawn.image_data is not None and st.button("Recognize"):
    pixels = drawn.image_data.astype(np.uint8)
    Net()(torch.tensor(pixels[..., 0])[None, None].float())
    print(kind, pixels.shape, streamlit_own.name)
"""
INTERFACE = """
import gradio as gr, numpy as np, torch
from net import Net
net = Net()

def classify(image, top):
    net(torch.tensor(np.asarray(image)).permute(2, 0, 1)[None].float())
    return {"cat": 1.0, "top": top}

page = gr.Interface(classify, [gr.Image(type="pil"), gr.Slider(1, 5, value=3)], gr.Label(), title="Cats", examples=["a.jpg"])
page.queue().launch()
"""
BLOCKS = """
import gradio as gr, torch
from net import Net
net = Net()

def classify(image, kind):
    net(torch.tensor(image).permute(2, 0, 1)[None].float())
    return kind

def explain():
    raise RuntimeError("nobody asked")

with gr.Blocks(theme=gr.themes.Soft()) as demo:
    gr.Markdown("# Cats")
    with gr.Row():
        image, kind = gr.Image(), gr.Radio(["small", "large"], label="Model")
        label = gr.Label(num_top_classes=3)
    gr.Button("Explain").click(explain)
    gr.Button("Classify").click(fn=classify, inputs=[image, kind], outputs=label)

if __name__ == "__main__":
    demo.launch(share=True)
"""


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (STREAMLIT, "(1, 3, 256, 256)\nsmall 0.5 [0, 1, 2] 1 upload.png\n"),
        (CANVAS, "(1, 1, 280, 300)\nDraw (280, 300, 4) mine\n"),
        (INTERFACE, "(1, 3, 256, 256)\n{'cat': 1.0, 'top': 3}\n"),
        (BLOCKS, "(1, 3, 256, 256)\nsmall\n"),
    ],
)
def test_a_page_is_used_once_as_a_visitor_would(rehearsed, page, says):
    done = rehearsed({"main.py": page, "net.py": NET, "streamlit_own.py": "name = 'mine'\n"})
    assert (done.report.ended, done.stdout) == ("finished", says), done.stderr
    assert len(done.standins("servers")) == 1
    assert done.report.user_weights


def test_a_page_of_a_network_of_one_size_is_given_pictures_of_that(rehearsed):
    text = (
        "import gradio as gr, torch\nconv = torch.nn.Conv2d(3, 5, 3)\n\ndef classify(image):\n"
        "    maps = conv(torch.tensor(image).permute(2, 0, 1)[None].float())\n"
        "    print(tuple(image.shape), tuple(maps.view(-1, 5 * 30 * 30).shape))\n\n"
        "gr.Interface(classify, gr.Image(), gr.Label()).launch()\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "(32, 32, 3) (1, 4500)\nNone\n"), done.report.why


def test_a_page_that_ends_itself_has_shown_enough(rehearsed):
    done = rehearsed({"main.py": "import streamlit as st\nprint('on')\nst.error('no')\nst.stop()\nprint('off')\n"})
    assert (done.report.ended, done.stdout) == ("enough", "on\n")


def test_the_libraries_are_gone_afterwards(on_stage):
    names = ("streamlit.components.v1", "streamlit_drawable_canvas", "gradio")
    with stand_in(on_stage().stage):
        for name in names:
            importlib.import_module(name)
    libraries = {name.partition(".")[0] for name in sys.modules}
    assert not libraries & {name.partition(".")[0] for name in names}


def test_an_uploaded_archive_holds_a_folder_of_images_for_each_class(rehearsed):
    """A page that trains on what its visitor uploads asks how many classes that has."""
    text = (
        "import io, os, tempfile, zipfile\nimport streamlit as st\nfrom PIL import Image\n"
        "count = st.sidebar.number_input('Número de Classes:', min_value=1, step=1)\n"
        "rounds = st.sidebar.number_input('Rounds', min_value=1, step=1)\n"
        "archive = st.file_uploader('Images', type=['zip'])\nfolder = tempfile.mkdtemp()\n"
        "zipfile.ZipFile(io.BytesIO(archive.read())).extractall(folder)\nclasses = os.listdir(folder)\n"
        "inside = [[Image.open(os.path.join(folder, name, file)) for file in os.listdir(os.path.join(folder, name))]\n"
        "          for name in classes]\n"
        "print(archive.name, count == len(classes), count > 1, rounds, all(inside))\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "upload.zip True True 1 True\n"), done.report.why
    assert any("was given to the page at 'Número de Classes:'" in item.what for item in done.standins("servers"))
