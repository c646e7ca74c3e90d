"""Bots whose functions are handed a photo, as a chat would; the libraries are not installed."""

import pytest

from tests.migrate.worker.rehearsal.hosts.opening import OPENING

TELEGRAM = """
import asyncio, os
from telegram import Update
from telegram.ext import ApplicationBuilder, MessageHandler, filters

async def start(update, context):
    await update.message.reply_text("hi")

async def photo(update: Update, context) -> None:
    file = await update.message.photo[-1].get_file()
    data = await file.download_as_bytearray()
    scores = NET(opened(bytes(data)))
    await update.message.reply_text(f"{tuple(scores.shape)}")
    return tuple(scores.shape)

async def main():
    token = os.getenv("BOT_TOKEN")
    if not token:
        raise RuntimeError("BOT_TOKEN not set")
    app = ApplicationBuilder().token(token).build()
    app.add_handler(MessageHandler(filters.PHOTO, photo))
    await app.run_polling()

asyncio.run(main())
"""
OLD_TELEGRAM = """
from telegram.ext import Updater, MessageHandler, Filters

def photo(update, context):
    file = context.bot.get_file(update.message.photo[-1].file_id)
    file.download("incoming/photo.jpg")
    scores = NET(opened(open("incoming/photo.jpg", "rb").read()))
    update.message.reply_text(str(scores.argmax().item()))
    return tuple(scores.shape)

updater = Updater("token", use_context=True)
updater.dispatcher.add_handler(MessageHandler(Filters.photo, photo))
updater.start_polling()
updater.idle()
"""
TELEBOT = """
import telebot
bot = telebot.TeleBot("token")

@bot.message_handler(commands=["start"])
def start(message):
    bot.send_message(message.chat.id, "hi")

@bot.message_handler(content_types=["photo"])
def photo(message):
    info = bot.get_file(message.photo[-1].file_id)
    data = bot.download_file(info.file_path)
    scores = NET(opened(data))
    bot.reply_to(message, str(scores.tolist()))
    return tuple(scores.shape)

bot.polling(none_stop=True)
"""
AIOGRAM = """
import asyncio, io
from aiogram import Bot, Dispatcher, F
bot, dp = Bot("token"), Dispatcher()

@dp.message(F.photo)
async def photo(message):
    buffer = io.BytesIO()
    await bot.download(message.photo[-1], destination=buffer)
    return tuple(NET(opened(buffer.getvalue())).shape)

asyncio.run(dp.start_polling(bot))
"""
DISCORD = """
import discord
client = discord.Client(intents=discord.Intents.default())

@client.event
async def on_message(message):
    if message.author == client.user or message.author.bot:
        return
    for attachment in message.attachments:
        if attachment.filename.endswith("jpg"):
            return tuple(NET(opened(await attachment.read())).shape)

client.run("token")
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("photo", TELEGRAM),
        ("photo", OLD_TELEGRAM),
        ("photo", TELEBOT),
        ("photo", AIOGRAM),
        ("on_message", DISCORD),
    ],
)
def test_the_function_that_takes_a_photo_gets_one(rehearsed, name, text):
    done = rehearsed({"main.py": OPENING + text})
    assert (done.report.ended, done.stdout) == ("finished", f"{name} of main.py: [1, 3]\n"), done.report.why
    assert f"{name} of main.py was called with a made image (photo) instead of being served" in [
        item.what for item in done.standins("servers")
    ]


def test_functions_of_another_file_are_found_and_those_without_photos_left(rehearsed):
    files = {"main.py": "import handlers\n", "handlers.py": OPENING + TELEBOT}
    done = rehearsed(files)
    assert (done.report.ended, done.stdout) == ("finished", "photo of handlers.py: [1, 3]\n"), done.report.why


def test_an_error_of_the_function_stops_the_rehearsal(rehearsed):
    done = rehearsed({"main.py": OPENING + TELEBOT.replace("NET(opened(data))", "NET(opened(data)[:, :2])")})
    assert done.report.ended == "stopped"
    assert "mat1 and mat2" in done.report.why


def test_a_script_without_a_chat_is_left(rehearsed):
    text = OPENING + "def photo(message):\n    return NET(opened(message.photo[-1].read()))\n"
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout, done.standins("servers")) == ("finished", "", [])
