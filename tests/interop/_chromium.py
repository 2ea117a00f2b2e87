# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that is driven through a pair of pipes (Chrome DevTools Protocol): no package beyond
the standard library, no port."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')
KEYS = {'Tab': ('Tab', 9, ''), 'Enter': ('Enter', 13, '\r'), ' ': ('Space', 32, ' ')}


def find():
    """The browser's path ($PARE_CHROMIUM first), or None."""
    named = os.environ.get('PARE_CHROMIUM')
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Broken(Exception):
    """The browser did not do what it was told."""


class Page:
    """One browser with one page. What it says on its console, and what it fetches, is kept."""

    def __init__(self, width=1280, height=900, dark=False):
        self.folder = tempfile.mkdtemp(prefix='pare-chromium-')
        self.said, self.fetched, self.number, self.text = [], [], 0, b''
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        # the browser reads descriptor 3 and writes 4: a shell puts them there
        words = ['sh', '-c', f'exec "$@" 3<&{to_browser} 4>&{from_browser}', 'sh', find(), '--headless=new',
                 '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
                 '--disable-background-networking', '--hide-scrollbars', '--force-color-profile=srgb',
                 f'--user-data-dir={self.folder}', f'--window-size={width},{height}',
                 '--remote-debugging-pipe', 'about:blank']
        self.process = subprocess.Popen(words, pass_fds=(to_browser, from_browser),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.session = None
        try:
            self._begin(width, height, dark)
        except BaseException:
            self.__exit__()
            raise

    def _begin(self, width, height, dark):
        target = self.call('Target.createTarget', url='about:blank')
        self.session = self.call('Target.attachToTarget', targetId=target['targetId'], flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')
        self.size(width, height)
        self.dark(dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.call('Browser.close', seconds=10)
            self.process.wait(10)
        except (Broken, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- messages ---

    def _message(self, until):
        while b'\0' not in self.text:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read], [], [], left)[0]:
                raise Broken('the browser does not answer')
            more = os.read(self.read, 1 << 20)
            if not more:
                raise Broken('the browser ended')
            self.text += more
        one, self.text = self.text.split(b'\0', 1)
        return json.loads(one)

    def _note(self, event):
        method, params = event.get('method'), event.get('params', {})
        if method == 'Runtime.exceptionThrown':
            self.said.append('exception: ' + json.dumps(params['exceptionDetails'])[:500])
        if method == 'Runtime.consoleAPICalled':
            self.said.append(f'{params["type"]}: {json.dumps(params["args"])[:500]}')
        if method == 'Log.entryAdded':
            self.said.append(f'{params["entry"]["level"]}: {params["entry"]["text"][:500]}')
        if method == 'Network.requestWillBeSent':
            self.fetched.append(params['request']['url'])

    def call(self, method, seconds=60, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        data = json.dumps(message).encode() + b'\0'
        while data:
            data = data[os.write(self.write, data):]
        return self._answer(seconds)

    def _answer(self, seconds):
        until = time.monotonic() + seconds
        while True:
            got = self._message(until)
            if got.get('id') == self.number:
                if 'error' in got:
                    raise Broken(got['error']['message'])
                return got['result']
            self._note(got)

    # --- what a test says ---

    def size(self, width, height, mobile=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                  mobile=mobile)

    def dark(self, dark):
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])

    def scripts(self, allowed):
        self.call('Emulation.setScriptExecutionDisabled', value=not allowed)

    def open(self, path):
        """Loads a file and waits until it is whole."""
        self.said, self.fetched = [], []
        self.call('Page.navigate', url=f'file://{os.path.abspath(path)}')
        until = time.monotonic() + 60
        while self.run('document.readyState + " " + location.protocol') != 'complete file:':
            if time.monotonic() > until:
                raise Broken('the page does not load')
            time.sleep(0.02)

    def run(self, text):
        """The value of an expression in the page."""
        done = self.call('Runtime.evaluate', expression=text, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in done:
            raise Broken(json.dumps(done['exceptionDetails'])[:500])
        return done['result'].get('value')

    def press(self, key):
        code, number, text = KEYS[key]
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=key, code=code, windowsVirtualKeyCode=number,
                      **({'text': text} if text and kind == 'keyDown' else {}))

    def picture(self, path, height=None):
        """A PNG of the window, or of the page down to a height."""
        clip = {}
        if height:
            clip = {'clip': {'x': 0, 'y': 0, 'width': self.run('innerWidth'), 'height': height, 'scale': 1},
                    'captureBeyondViewport': True}
        data = self.call('Page.captureScreenshot', format='png', **clip)['data']
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data))
