"""Viewer for 3D examples: like `viewer`, with a movable camera.

A simulation is an object with `step()` and `draw(scene)`. The keys w, a, s, d, e, q move the
camera, the mouse with the right button rotates it, Escape quits.

    stage.run(Cloth, "cloth", eye=(0, 1, 3), at=(0, 0, 0))
"""

from __future__ import annotations

import time

import viewer

import vkchi as ti


def run(make, title: str, eye, at, res=(640, 480), background=(0.07, 0.09, 0.13)) -> None:
    """Make a simulation, and step and draw it until the window is closed.

    Options on the command line set the number of frames and the folder of a film.
    """
    options = viewer.parse(title)
    ti.init(arch=ti.vulkan, **({"device": options.device} if options.device else {}))
    simulation = make()
    window = ti.ui.Window(title, res, vsync=True, show_window=options.is_windowed)
    canvas, scene, camera = window.get_canvas(), window.get_scene(), ti.ui.Camera()
    camera.position(*eye)
    camera.lookat(*at)
    film = options.save and ti.tools.VideoManager(
        options.save, video_filename=options.save.name, automatic_build=False)  # fmt: skip
    frame, begin = 0, time.perf_counter()
    while window.running and frame != options.frames:
        for event in window.get_events(ti.ui.PRESS):
            if event.key == ti.ui.ESCAPE:
                window.running = False
        camera.track_user_inputs(window, movement_speed=0.02, hold_key=ti.ui.RMB)
        simulation.step()
        canvas.set_background_color(background)
        scene.set_camera(camera)
        scene.ambient_light((0.35, 0.35, 0.4))
        scene.point_light(pos=(2, 4, 3), color=(0.7, 0.7, 0.65))
        simulation.draw(scene)
        canvas.scene(scene)
        if film:
            film.write_frame(window.get_image_buffer_as_numpy()[:, :, :3])
        window.show()
        frame += 1
        seconds = time.perf_counter() - begin
        if options.demo and options.is_windowed and seconds > viewer.DEMO_SECONDS:
            break
    if frame:
        print(f"{title}: {frame} frames, {seconds / frame * 1e3:.1f} ms each")
    if film and frame:
        film.make_video(mp4=False)
        print(f"wrote {film.get_output_filename('.gif')}")
