from springtide.learn.advise import Advice


def page(advice: Advice, top: int) -> str:
    return ""
