"""Windows of tkinter where there is no screen."""

import pytest

from headrace.migrate.worker.rehearsal.edges import screens

WINDOW = """
import tkinter as tk
from tkinter import filedialog, messagebox, ttk
from PIL import Image, ImageDraw, ImageGrab, ImageTk

said = []
root = tk.Tk()
root.title("Draw")
canvas = tk.Canvas(root, width=200, height=100)
canvas.pack()
drawn = Image.new("L", (280, 280))
name = tk.StringVar(value="cat")
answer = ttk.Label(root, text="?")
choice = ttk.Combobox(root, values=["a", "b"])
choice.set("b")

def show():
    said.append(("shown", opened.size))

def load():
    global opened
    opened = Image.open(filedialog.askopenfilename(title="An image"))
    shown = ImageTk.PhotoImage(opened)
    answer.configure(image=shown, text="opened")
    said.append(("loaded", messagebox.askyesno("Sure?", "Sure?"), int(canvas["width"]), name.get(), choice.get()))

def wipe():
    said.append("wiped")

def move(event):
    ImageDraw.Draw(drawn).point((event.x, event.y), fill=255)

def done(event):
    said.append(("drawn", drawn.getbbox(), ImageGrab.grab((0, 0, 40, 20)).size, canvas.winfo_width()))

def tick():
    said.append("ticked")

canvas.bind("<B1-Motion>", move)
canvas.bind("<ButtonRelease-1>", done)
tk.Button(root, text="Classify", command=show).pack()
menu = tk.Menu(root)
menu.add_command(label="Open", command=load)
tk.Button(root, text="Clear", command=wipe).pack()
tk.Scale(root, from_=0, to=3, command=lambda value: said.append(value)).pack()
root.after(100, tick)
root.mainloop()
"""


def test_a_window_is_not_opened_and_is_used(on_stage):
    pytest.importorskip("tkinter")
    world = on_stage(screens)
    said = world.play(WINDOW)["said"]
    drawn, loaded = ("drawn", (60, 60, 201, 201), (40, 20), 280), ("loaded", True, 200, "cat", "b")
    size = next(item[1] for item in said if item[0] == "shown")
    assert said == [drawn, loaded, "ticked", drawn, ("shown", size), loaded]
    assert "a window of tkinter was not opened; what its buttons and the mouse call was called" in world.said("screens")


def test_what_a_button_calls_stops_the_script_where_nothing_called_a_model(on_stage):
    pytest.importorskip("tkinter")
    text = "import tkinter\nroot = tkinter.Tk()\ntkinter.Button(root, command=lambda: 1 / 0)\nroot.mainloop()\n"
    world = on_stage(screens)
    assert isinstance(world.stopped(text), ZeroDivisionError)
    world.stage.computed = True
    world.play(text)
