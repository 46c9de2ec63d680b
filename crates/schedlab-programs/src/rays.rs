//! A picture of spheres that mirror each other, traced ray by ray in the manner of c-ray; rows shared among threads.
//!
//! Each thread has a block of rows, some of which see more spheres than others: threads end at different times, and the
//! picture is done with the last one. Only operations whose result IEEE 754 fixes are used, so that a picture is the same
//! to the bit on every machine; checked by a small picture whose sum is known, and by rows traced once more.

use super::{Answer, timed};
use std::thread;

/// Width of the picture whose sum is known, and the sum.
const SMALL: usize = 32;
const SMALL_SUM: u64 = 0x73e2_1ed9_bb04_c411;
/// Every so many-th row is traced once more.
const CHECKED: usize = 32;
/// How often a ray is mirrored.
const DEPTH: u32 = 5;
/// Rays through each pixel, in each direction.
const RAYS: usize = 2;
/// Closer hits are the surface that the ray leaves.
const NEAR: f64 = 1e-6;

type Vector = [f64; 3];

/// A ball that shines back this part of the light.
struct Sphere {
    center: Vector,
    radius: f64,
    color: Vector,
    mirror: f64,
}

pub(super) fn run(size: usize, threads: usize) -> Answer {
    let scene = scene();
    let mut picture = vec![0_u8; size * size * 3];
    let ((), elapsed) = timed(|| trace(&scene, &mut picture, size, threads));
    let mut small = vec![0_u8; SMALL * SMALL * 3];
    trace(&scene, &mut small, SMALL, 1);
    let again = |row: usize| {
        let mut pixels = vec![0_u8; size * 3];
        trace_row(&scene, &mut pixels, row, size);
        pixels == picture[row * size * 3..(row + 1) * size * 3]
    };
    let right = sum(&small) == SMALL_SUM && (0..size).step_by(CHECKED).all(again);
    Answer { answer: format!("picture {:016x}", sum(&picture)), right, elapsed, flops: None }
}

/// A floor of small spheres under a few large ones.
fn scene() -> Vec<Sphere> {
    let ball = |center: Vector, radius, color, mirror| Sphere { center, radius, color, mirror };
    let mut scene = vec![
        ball([0.0, 0.0, 6.0], 1.5, [0.9, 0.3, 0.2], 0.4),
        ball([-2.4, 0.6, 7.5], 1.2, [0.2, 0.8, 0.3], 0.5),
        ball([2.5, -0.2, 5.0], 0.9, [0.2, 0.4, 0.9], 0.6),
        ball([0.0, -1_002.0, 0.0], 1_000.0, [0.6, 0.6, 0.6], 0.1),
    ];
    for column in 0..6 {
        for row in 0..4 {
            let (x, z) = (f64::from(column) - 2.5, 3.5 + f64::from(row));
            scene.push(ball([x, -1.75, z], 0.25, [0.8, 0.7, 0.2], 0.3));
        }
    }
    scene
}

/// Each thread traces a block of rows.
fn trace(scene: &[Sphere], picture: &mut [u8], size: usize, threads: usize) {
    let rows_each = size.div_ceil(threads);
    let rows = |first: usize, block: &mut [u8]| {
        for (row, pixels) in block.chunks_exact_mut(size * 3).enumerate() {
            trace_row(scene, pixels, first + row, size);
        }
    };
    if threads == 1 {
        return rows(0, picture);
    }
    thread::scope(|scope| {
        for (index, block) in picture.chunks_mut(rows_each * size * 3).enumerate() {
            scope.spawn(move || rows(index * rows_each, block));
        }
    });
}

fn trace_row(scene: &[Sphere], pixels: &mut [u8], row: usize, size: usize) {
    let fine = (size * RAYS) as f64;
    let at = |pixel: usize, ray: usize| ((pixel * RAYS + ray) as f64 + 0.5) / fine * 2.0 - 1.0;
    for (column, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let mut light = [0.0; 3];
        for ray in 0..RAYS * RAYS {
            let direction = unit([at(column, ray % RAYS), -at(row, ray / RAYS), 1.5]);
            light = add(light, shine(scene, [0.0; 3], direction, DEPTH));
        }
        for (value, light) in pixel.iter_mut().zip(light) {
            *value = (light / (RAYS * RAYS) as f64 * 255.0).clamp(0.0, 255.0) as u8;
        }
    }
}

/// The light that comes along a ray.
fn shine(scene: &[Sphere], from: Vector, direction: Vector, depth: u32) -> Vector {
    let Some((distance, sphere)) = hit(scene, from, direction) else {
        let height = direction[1] * 0.5 + 0.5;
        return add(scale([0.5, 0.7, 1.0], height), scale([0.2, 0.2, 0.25], 1.0 - height));
    };
    let place = add(from, scale(direction, distance));
    let normal = unit(subtract(place, sphere.center));
    let lamp = subtract([4.0, 7.0, 1.0], place);
    let far = dot(lamp, lamp).sqrt();
    let to_lamp = scale(lamp, 1.0 / far);
    let shadow = hit(scene, place, to_lamp).is_some_and(|(distance, _)| distance < far);
    let falls = if shadow { 0.0 } else { dot(normal, to_lamp).max(0.0) };
    let mirrored = subtract(direction, scale(normal, 2.0 * dot(direction, normal)));
    // The 32nd power, by squaring: no function whose last bit differs between machines.
    let glint =
        if shadow { 0.0 } else { (0..5).fold(dot(mirrored, to_lamp).max(0.0), |value, _| value * value) };
    let own = add(scale(sphere.color, 0.1 + 0.8 * falls), [0.5 * glint; 3]);
    if depth == 0 {
        return own;
    }
    let seen = shine(scene, place, mirrored, depth - 1);
    add(scale(own, 1.0 - sphere.mirror), scale(seen, sphere.mirror))
}

/// The first sphere that a ray hits, and where.
fn hit(scene: &[Sphere], from: Vector, direction: Vector) -> Option<(f64, &Sphere)> {
    let mut first: Option<(f64, &Sphere)> = None;
    for sphere in scene {
        let to_center = subtract(sphere.center, from);
        let along = dot(to_center, direction);
        let inside = along * along - dot(to_center, to_center) + sphere.radius * sphere.radius;
        if inside < 0.0 {
            continue;
        }
        let root = inside.sqrt();
        let distance = if along - root > NEAR { along - root } else { along + root };
        if distance > NEAR && first.is_none_or(|(least, _)| distance < least) {
            first = Some((distance, sphere));
        }
    }
    first
}

/// FNV-1a over the bytes.
fn sum(picture: &[u8]) -> u64 {
    picture
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn add(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn subtract(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn scale(a: Vector, by: f64) -> Vector {
    [a[0] * by, a[1] * by, a[2] * by]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn unit(a: Vector) -> Vector {
    scale(a, 1.0 / dot(a, a).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_picture_is_the_known_one_whoever_traces_it() {
        for threads in [1, 2, 3, 5, 32] {
            let made = run(SMALL, threads);
            assert!(made.right, "{threads} threads: {made:?}");
            assert_eq!(made.answer, format!("picture {SMALL_SUM:016x}"));
        }
        assert!(run(70, 4).right && run(70, 4).answer == run(70, 1).answer);
    }

    #[test]
    fn a_ray_hits_what_is_in_front_of_it() {
        let ball = |z: f64| Sphere { center: [0.0, 0.0, z], radius: 1.0, color: [1.0; 3], mirror: 0.0 };
        let scene = [ball(9.0), ball(5.0), ball(-3.0)];
        let ahead = hit(&scene, [0.0; 3], [0.0, 0.0, 1.0]).map(|(distance, _)| distance);
        assert_eq!(ahead, Some(4.0), "the nearest, and none behind");
        assert!(hit(&scene, [0.0; 3], [0.0, 1.0, 0.0]).is_none());
        let from_inside = hit(&scene[1..2], [0.0, 0.0, 5.0], [0.0, 0.0, 1.0]).map(|(distance, _)| distance);
        assert_eq!(from_inside, Some(1.0));
    }

    #[test]
    fn the_picture_has_light_and_shadow() {
        let mut picture = vec![0_u8; 64 * 64 * 3];
        trace(&scene(), &mut picture, 64, 2);
        let (dark, bright) = (
            picture.iter().filter(|byte| **byte < 40).count(),
            picture.iter().filter(|byte| **byte > 160).count(),
        );
        assert!(dark > 100 && bright > 100, "{dark} dark, {bright} bright of {}", picture.len());
    }
}
