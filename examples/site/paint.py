#!/usr/bin/env python3
"""Paints the pictures of the gallery and the icon. Needs numpy and Pillow; the pictures are checked in."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

PUBLIC = Path(__file__).resolve().parent / "public"
WIDTH, HEIGHT = 1200, 800

# The swift of assets/swift.svg, head up: cubic curves, right half; the left one mirrors it.
RIGHT = [
    ((0, -27), (4, -27), (7, -23), (8, -17)),
    ((8, -17), (32, -20), (70, -6), (98, 32)),
    ((98, 32), (64, 10), (34, 3), (10, 8)),
    ((10, 8), (8, 20), (8, 30), (12, 46)),
    ((12, 46), (8, 42), (4, 38), (0, 35)),
]


def outline():
    points = []
    for a, b, c, d in RIGHT:
        for t in np.linspace(0, 1, 24, endpoint=False):
            s = 1 - t
            points.append([s**3 * a[i] + 3 * s * s * t * b[i] + 3 * s * t * t * c[i] + t**3 * d[i] for i in (0, 1)])
    right = np.array(points)
    return np.concatenate([right, right[::-1] * [-1, 1]])


SWIFT = outline()


def clouds(rng, octaves=6):
    """Fractal noise from 0 to 1, stretched along the horizon."""
    total = np.zeros((HEIGHT, WIDTH))
    for octave in range(octaves):
        cells = (3 * 2**octave + 2, 2 * 2**octave + 2)
        noise = Image.fromarray((rng.random(cells) * 255).astype(np.uint8))
        total += np.asarray(noise.resize((WIDTH, HEIGHT), Image.BICUBIC), float) / 255 / 1.8**octave
    return (total - total.min()) / (total.max() - total.min())


def sky(rng, colours, cloud, amount):
    y = np.linspace(0, 1, HEIGHT)
    stops = np.linspace(0, 1, len(colours))
    base = np.stack([np.interp(y, stops, [c[i] for c in colours]) for i in range(3)], axis=-1)
    image = np.repeat(base[:, None, :], WIDTH, axis=1)
    veil = np.clip((clouds(rng) - 0.45) * 2.2, 0, 1)[..., None] * amount
    image = image * (1 - veil) + np.array(cloud) * veil
    return image + rng.normal(0, 1.2, image.shape)


def swifts(image, rng, count, colour, smallest, largest, heading):
    """A flock: the near birds large, sharp and dark, the far ones small and pale."""
    for size in sorted(rng.uniform(smallest, largest, count).tolist()):
        angle = heading + rng.normal(0, 0.35)
        squeeze = rng.uniform(0.45, 1.0)  # Banked: one sees less of the wings.
        bird = SWIFT * [squeeze, 1] * size / 100
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        bird = bird @ turn.T + [rng.uniform(60, WIDTH - 60), rng.uniform(50, HEIGHT * 0.78)]
        mask = Image.new("L", (WIDTH * 2, HEIGHT * 2))
        ImageDraw.Draw(mask).polygon([tuple(p) for p in bird * 2], fill=255)
        mask = mask.resize((WIDTH, HEIGHT), Image.LANCZOS)
        nearness = (size - smallest) / (largest - smallest)
        mask = np.asarray(mask.filter(ImageFilter.GaussianBlur(0.4 + 0.9 * nearness)), float)
        mask = mask[..., None] / 255 * (0.6 + 0.4 * nearness)
        image = image * (1 - mask) + np.array(colour) * mask
    return image


def roofs(image, rng, colour, windows=None):
    """A skyline of gables along the lower edge."""
    mask = Image.new("L", (WIDTH * 2, HEIGHT * 2))
    lit = Image.new("L", (WIDTH * 2, HEIGHT * 2))
    draw, light = ImageDraw.Draw(mask), ImageDraw.Draw(lit)
    x = -60
    while x < WIDTH * 2:
        wide, wall = rng.uniform(120, 260), rng.uniform(120, 260)
        ridge = wall + wide * rng.uniform(0.35, 0.6)
        floor = HEIGHT * 2
        draw.polygon([(x, floor), (x, floor - wall), (x + wide / 2, floor - ridge), (x + wide, floor - wall),
                      (x + wide, floor)], fill=255)
        chimney = x + wide * rng.uniform(0.2, 0.4)
        draw.rectangle([chimney, floor - ridge, chimney + 22, floor - wall], fill=255)
        for row in range(int(wall // 80)):
            for column in range(int(wide // 60)):
                if rng.random() < 0.35:
                    left, top = x + 24 + column * 56, floor - wall + 24 + row * 80
                    light.rectangle([left, top, left + 20, top + 30], fill=220)
        x += wide + rng.uniform(-6, 30)
    for layer, tint in ((mask, colour), (lit, windows)):
        if tint is not None:
            alpha = np.asarray(layer.resize((WIDTH, HEIGHT), Image.LANCZOS), float)[..., None] / 255
            image = image * (1 - alpha) + np.array(tint) * alpha
    return image


def sun(image, x, y, radius, colour, strength):
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    far = np.hypot(columns - x, rows - y)
    disc = np.clip((radius - far) / 2, 0, 1)[..., None]
    glow = np.exp(-far / (radius * 4))[..., None] * strength
    light = np.clip(disc + glow, 0, 1)
    return image * (1 - light) + np.array(colour) * light


def stars(image, rng, count):
    for _ in range(count):
        x, y = rng.integers(0, WIDTH), rng.integers(0, int(HEIGHT * 0.8))
        image[y, x] = image[y, x] * 0.3 + 255 * rng.uniform(0.3, 0.7)
    return image


def save(image, name):
    picture = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
    picture.save(PUBLIC / "gallery" / f"{name}.webp", quality=82, method=6)


def gallery():
    rng = np.random.default_rng(1)
    image = sky(rng, [(58, 84, 132), (166, 150, 176), (244, 190, 150), (252, 226, 180)], (255, 214, 190), 0.7)
    image = sun(image, 860, 640, 46, (255, 244, 214), 0.5)
    save(roofs(swifts(image, rng, 16, (36, 30, 44), 14, 64, 0.9), rng, (44, 38, 54)), "dawn")

    rng = np.random.default_rng(7)
    image = sky(rng, [(58, 126, 190), (122, 178, 222), (196, 224, 240)], (255, 255, 255), 0.95)
    save(swifts(image, rng, 11, (34, 34, 40), 26, 170, -0.6), "noon")

    rng = np.random.default_rng(23)
    image = sky(rng, [(38, 40, 88), (126, 62, 110), (226, 110, 84), (250, 178, 96)], (120, 60, 100), 0.75)
    image = sun(image, 330, 600, 60, (255, 220, 150), 0.55)
    save(roofs(swifts(image, rng, 34, (28, 16, 34), 10, 84, 2.2), rng, (30, 18, 36), (255, 206, 120)), "dusk")

    rng = np.random.default_rng(5)
    image = stars(sky(rng, [(6, 10, 26), (14, 24, 52), (34, 48, 84)], (46, 60, 96), 0.5), rng, 700)
    image = sun(image, 900, 190, 54, (238, 236, 220), 0.22)
    save(swifts(image, rng, 7, (4, 6, 14), 20, 90, 0.3), "night")


def icon():
    picture = Image.new("RGB", (720, 720), (27, 43, 66))
    bird = SWIFT @ np.array([[0.82, 0.57], [-0.57, 0.82]]) * 3.1 + [352, 350]
    ImageDraw.Draw(picture).polygon([tuple(point) for point in bird], fill=(244, 239, 228))
    picture.resize((180, 180), Image.LANCZOS).save(PUBLIC / "assets" / "icon.png", optimize=True)


if __name__ == "__main__":
    gallery()
    icon()
