"""Stand-ins for loggers and bars of progress, in whatever way they are used."""


def test_a_silent_library_is_gone_through_awaited_and_entered(rehearsed):
    text = (
        "import asyncio\nfrom loguru import logger\nimport progress\n\n"
        "class Loader:\n    def __iter__(self):\n        return progress.bar()\n\n"
        "async def main():\n    async with logger.session() as session:\n        await session.send('x')\n"
        "    return [item async for item in logger.stream([1, 2])]\n\n"
        "print(len(list(Loader())), asyncio.run(main()), 'x' in logger, [1, 2][logger.level], logger.level % 3)\n"
        "del logger['x']\n"
    )
    done = rehearsed({"main.py": text})
    assert (done.report.ended, done.stdout) == ("finished", "2 [1, 2] False 1 0.0\n"), done.report.why
