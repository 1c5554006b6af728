// Drives a headless Chromium over its debugging pipe (Chrome DevTools Protocol), with nothing but Node.
import {spawn, spawnSync} from 'node:child_process';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';

export function findBrowser() {
  const names = [process.env.HEADROOM_BROWSER, 'chromium', 'chromium-browser', 'google-chrome'].filter(Boolean);
  return names.find(name => spawnSync(name, ['--version']).status === 0);
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), 'headroom-browser-'));
    browser.child = spawn(findBrowser(), ['--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--no-first-run', '--remote-debugging-pipe',
      '--host-resolver-rules=MAP * ~NOTFOUND', `--user-data-dir=${browser.profile}`, 'about:blank'], {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    browser.waiting = new Map();
    browser.events = [];
    browser.next = 1;
    let rest = Buffer.alloc(0);
    browser.child.stdio[4].on('data', part => {
      rest = Buffer.concat([rest, part]);
      for (let end; (end = rest.indexOf(0)) >= 0; rest = rest.subarray(end + 1)) browser.receive(JSON.parse(rest.subarray(0, end).toString()));
    });
    const {targetInfos} = await browser.send('Target.getTargets'), page = targetInfos.find(target => target.type === 'page');
    browser.session = (await browser.send('Target.attachToTarget', {targetId: page.targetId, flatten: true})).sessionId;
    for (const domain of ['Page', 'Runtime', 'Network', 'Log', 'Performance']) await browser.send(`${domain}.enable`);
    return browser;
  }
  receive(message) {
    const waiting = this.waiting.get(message.id);
    if (!waiting) return this.events.push(message);
    this.waiting.delete(message.id);
    if (message.error) waiting.fail(new Error(`${waiting.method}: ${message.error.message}`)); else waiting.done(message.result);
  }
  send(method, params = {}) {
    const id = this.next++;
    return new Promise((done, fail) => {
      this.waiting.set(id, {done, fail, method});
      this.child.stdio[3].write(JSON.stringify({id, method, params, sessionId: this.session}) + '\0');
    });
  }
  async evaluate(expression) {
    const {result, exceptionDetails} = await this.send('Runtime.evaluate', {expression, awaitPromise: true, returnByValue: true});
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }
  async size(width, height, dark = false) {
    await this.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: 1, mobile: false});
    await this.send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: dark ? 'dark' : 'light'}]});
  }
  async wait(condition, seconds = 60) {
    for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
      if (await this.evaluate(condition)) return;
      await new Promise(done => setTimeout(done, 25));
    }
    throw new Error(`waited ${seconds} s in vain for ${condition}`);
  }
  // Opens a report and waits until it is painted.
  async open(path) {
    this.events.length = 0;
    await this.send('Page.navigate', {url: pathToFileURL(path).href});
    await this.wait(`performance.getEntriesByName('report:painted').length > 0 || document.querySelector('.warn') !== null`);
  }
  async key(key, modifiers = 0) {
    const text = key.length === 1 ? key : undefined;
    await this.send('Input.dispatchKeyEvent', {type: 'keyDown', key, text, modifiers});
    await this.send('Input.dispatchKeyEvent', {type: 'keyUp', key, modifiers});
  }
  async mouse(type, x, y, more = {}) { await this.send('Input.dispatchMouseEvent', {type, x, y, ...more}); }
  async click(x, y) {
    await this.mouse('mousePressed', x, y, {button: 'left', buttons: 1, clickCount: 1});
    await this.mouse('mouseReleased', x, y, {button: 'left', clickCount: 1});
  }
  async screenshot(path, whole = true) {
    const {data} = await this.send('Page.captureScreenshot', {format: 'png', captureBeyondViewport: whole});
    writeFileSync(path, Buffer.from(data, 'base64'));
  }
  // What the page logged, threw, was refused or asked the network for.
  complaints() {
    return this.events.flatMap(({method, params}) => method === 'Runtime.exceptionThrown' ? [params.exceptionDetails.exception?.description || params.exceptionDetails.text]
      : method === 'Log.entryAdded' && params.entry.level !== 'verbose' ? [params.entry.text] : method === 'Runtime.consoleAPICalled' ? [`console: ${params.args.map(a => a.value).join(' ')}`]
      : method === 'Network.requestWillBeSent' && !/^(file|blob):/.test(params.request.url) ? [`request: ${params.request.url}`] : []);
  }
  async stop() {
    const gone = new Promise(done => this.child.once('exit', done));
    this.send('Browser.close').catch(() => {});
    await Promise.race([gone, new Promise(done => setTimeout(done, 5000))]);
    this.child.kill('SIGKILL');
    rmSync(this.profile, {recursive: true, force: true, maxRetries: 10, retryDelay: 200});
  }
}
