"""A tone as a live stream, by GStreamer's RTSP server: python3 server.py ADDRESS PORT."""
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address(sys.argv[1])
server.set_service(sys.argv[2])
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1 ! mulawenc ! rtppcmupay name=pay0 pt=0"
    " min-ptime=20000000 max-ptime=20000000 )"
)
server.get_mount_points().add_factory("/tone", factory)
server.attach(None)
GLib.MainLoop().run()
