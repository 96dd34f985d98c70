"""WGSL shaders for shapes that pygfx lacks: spheres, flat-ended lines, lit surfaces.

The sources are templates for pygfx, with these variables:
- `pos`, `colour`: components of positions and colours; `colour` is 0 for a common colour;
- `flat`: positions are fractions of the window;
- `indexed`, `normals`, `radii`, `instanced`, `two_sided`, `wireframe`: options of the draw.

Lighting: colour * (ambient + sum of lights * max(0, normal . direction to the light)); of two-sided
meshes with |normal . direction|. Source: Taichi's documentation of GGUI, and its images.

Spheres are impostors, as in Taichi: a disc around the projected centre, whose radius is that of a
segment of length r at the distance of the centre. Normals and depths are those of the half sphere
that is turned to the image plane.
"""

from __future__ import annotations

COMMON = """
{$ include 'pygfx.std.wgsl' $}

fn place_of(i: i32) -> vec3<f32> {
    $$ if pos == 2
        return vec3<f32>(load_s_positions(i), 0.0);
    $$ else
        return load_s_positions(i);
    $$ endif
}

fn colour_of(i: i32) -> vec3<f32> {
    $$ if colour == 0
        return u_material.color.rgb;
    $$ else
        return load_s_colors(i).rgb;
    $$ endif
}

fn node_of(k: i32) -> i32 {
    $$ if indexed
        return i32(load_s_indices(k));
    $$ else
        return k;
    $$ endif
}

fn corner_of(k: u32) -> vec2<f32> {
    // of a square, in the order of a strip
    return vec2<f32>(f32(k % 2), f32(k / 2)) * 2.0 - 1.0;
}

fn clip_of(world: vec3<f32>) -> vec4<f32> {
    return u_stdinfo.projection_transform * u_stdinfo.cam_transform * vec4<f32>(world, 1.0);
}

$$ if not flat
{{ light_definitions }}

fn light_on(at: vec3<f32>, normal: vec3<f32>) -> vec3<f32> {
    var sum = u_ambient_light.color.rgb;
    $$ if num_point_lights > 0
    for (var k = 0; k < {{ num_point_lights }}; k++) {
        let light = u_point_lights[k];
        let way = normalize(light.world_transform[3].xyz - at);
        $$ if two_sided
            let facing = abs(dot(normal, way));
        $$ else
            let facing = max(0.0, dot(normal, way));
        $$ endif
        sum += srgb2physical(light.color.rgb) * light.intensity * facing;
    }
    $$ endif
    return sum;
}
$$ endif
"""

BALLS = """
struct VertexInput {
    @builtin(vertex_index) index: u32,
    @builtin(instance_index) instance: u32,
};

@vertex
fn vs_main(in: VertexInput) -> Varyings {
    let i = i32(in.instance);
    let corner = corner_of(in.index);
    $$ if radii
        let radius = load_s_radii(i);
    $$ else
        let radius = u_material.size;
    $$ endif
    var varyings: Varyings;
    varyings.color = vec3<f32>(colour_of(i));
    varyings.radius = f32(radius);
    varyings.corner = vec2<f32>(corner);
    $$ if flat
        let screen = u_stdinfo.physical_size;
        let size = 2.0 * radius * vec2<f32>(screen.y / screen.x, 1.0);
        let clip = clip_of(place_of(i));
        varyings.position = vec4<f32>(clip.xy + corner * size, clip.zw);
    $$ else
        let centre = (u_stdinfo.cam_transform * vec4<f32>(place_of(i), 1.0)).xyz;
        let projection = u_stdinfo.projection_transform;
        let clip = projection * vec4<f32>(centre, 1.0);
        let far = select(max(length(centre), 1e-9), 1.0, is_orthographic());
        let size = radius / far * vec2<f32>(projection[0][0], projection[1][1]);
        varyings.centre = vec3<f32>(centre);
        varyings.position = vec4<f32>(clip.xy + corner * size * clip.w, clip.zw);
    $$ endif
    return varyings;
}

@fragment
fn fs_main(varyings: Varyings) -> FragmentOutput {
    let corner = varyings.corner;
    let inside = 1.0 - dot(corner, corner);
    if (inside < 0.0) { discard; }
    $$ if flat
        let color = varyings.color;
    $$ else
        let normal = vec3<f32>(corner, sqrt(inside));
        let hit = varyings.centre + varyings.radius * normal;
        let clip = u_stdinfo.projection_transform * vec4<f32>(hit, 1.0);
        let depth = clamp(clip.z / clip.w, 0.0, 1.0);
        let turn = u_stdinfo.cam_transform_inv;
        let color = varyings.color
            * light_on((turn * vec4<f32>(hit, 1.0)).xyz, (turn * vec4<f32>(normal, 0.0)).xyz);
    $$ endif
    var out: FragmentOutput;
    out.color = vec4<f32>(color, 1.0);
    $$ if not flat
        out.depth = depth;
    $$ endif
    return out;
}
"""

LINES = """
struct VertexInput {
    @builtin(vertex_index) index: u32,
    @builtin(instance_index) instance: u32,
};

fn cut(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    // a, moved along the line to in front of the eye
    const NEAR = 1e-5;
    if (a.w >= NEAR || b.w <= NEAR) { return a; }
    return mix(a, b, (NEAR - a.w) / (b.w - a.w));
}

@vertex
fn vs_main(in: VertexInput) -> Varyings {
    let k = i32(in.instance);
    let corner = corner_of(in.index);
    let begin = node_of(2 * k);
    let end = node_of(2 * k + 1);
    let whole_a = clip_of(place_of(begin));
    let whole_b = clip_of(place_of(end));
    let a = cut(whole_a, whole_b);
    let b = cut(whole_b, whole_a);
    let half_screen = 0.5 * u_stdinfo.physical_size;
    var way = (b.xy / b.w - a.xy / a.w) * half_screen;
    way = way / max(length(way), 1e-9);
    let aside = 0.5 * u_material.size * vec2<f32>(-way.y, way.x) * corner.y / half_screen;
    let here = select(b, a, corner.x < 0.0);
    let node = select(end, begin, corner.x < 0.0);
    var varyings: Varyings;
    varyings.color = vec3<f32>(colour_of(node));
    varyings.position = vec4<f32>(here.xy + aside * here.w, here.zw);
    return varyings;
}

@fragment
fn fs_main(varyings: Varyings) -> FragmentOutput {
    var out: FragmentOutput;
    out.color = vec4<f32>(varyings.color, 1.0);
    return out;
}
"""

SURFACE = """
struct VertexInput {
    @builtin(vertex_index) index: u32,
    @builtin(instance_index) instance: u32,
};

fn transform_of(instance: i32) -> mat4x4<f32> {
    $$ if instanced
        return mat4x4<f32>(
            load_s_transforms(4 * instance), load_s_transforms(4 * instance + 1),
            load_s_transforms(4 * instance + 2), load_s_transforms(4 * instance + 3),
        );
    $$ else
        return mat4x4<f32>(
            1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
        );
    $$ endif
}

fn cofactors(m: mat4x4<f32>) -> mat3x3<f32> {
    // turns normals as m turns tangents
    return mat3x3<f32>(
        cross(m[1].xyz, m[2].xyz), cross(m[2].xyz, m[0].xyz), cross(m[0].xyz, m[1].xyz),
    );
}

@vertex
fn vs_main(in: VertexInput) -> Varyings {
    let k = i32(in.index);
    let node = node_of(k);
    let transform = transform_of(i32(in.instance));
    let world = transform * vec4<f32>(place_of(node), 1.0);
    var varyings: Varyings;
    varyings.color = vec3<f32>(colour_of(node));
    varyings.at = vec3<f32>(world.xyz);
    $$ if not flat
        $$ if normals
            let normal = load_s_normals(node);
        $$ else
            let first = k - k % 3;
            let a = place_of(node_of(first));
            let normal = cross(
                place_of(node_of(first + 1)) - a, place_of(node_of(first + 2)) - a,
            );
        $$ endif
        varyings.normal = vec3<f32>(cofactors(transform) * normal);
    $$ endif
    $$ if wireframe
        let number = k % 3;
        varyings.edge = vec3<f32>(f32(number == 0), f32(number == 1), f32(number == 2));
    $$ endif
    varyings.position = vec4<f32>(clip_of(world.xyz));
    return varyings;
}

@fragment
fn fs_main(varyings: Varyings) -> FragmentOutput {
    $$ if wireframe
        let apart = varyings.edge / fwidth(varyings.edge);
        if (min(apart.x, min(apart.y, apart.z)) > 1.0) { discard; }
    $$ endif
    $$ if flat
        let color = varyings.color;
    $$ else
        let color = varyings.color * light_on(varyings.at, normalize(varyings.normal));
    $$ endif
    var out: FragmentOutput;
    out.color = vec4<f32>(color, 1.0);
    return out;
}
"""

TEXTS = {
    "balls": COMMON + BALLS,
    "lines": COMMON + LINES,
    "surface": COMMON + SURFACE,
}
SQUARES = frozenset(("balls", "lines"))  # drawn as squares, one per instance
