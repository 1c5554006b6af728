#!/usr/bin/env python3
"""Records what Jinja2, set up as transformers does, makes of templates: tests/chat/vectors.json.

Run in an environment with transformers 5 and jinja2 3.1:  python tests/parity/record_chat.py
The templates are written for this project; each exercises some of what templates use. A vector with "error" is one that
the reference refuses too; one with "unsupported" renders there and is refused here, by design, with that text.
"""
import json
import os
import sys

from transformers.utils.chat_template_utils import _alias_reasoning_fields, _compile_jinja_template, _render_with_assistant_indices

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = os.path.join(HERE, "..", "..", "src", "chat", "presets.c")

MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Grüße 😀\nΣΑΣ ß"},
    {"role": "assistant", "content": "ok"},
]
VARIABLES = {
    "n": 7, "z": 0, "neg": -3, "big": 9007199254740993, "f": 2.5, "t": True, "fa": False, "no": None,
    "s": "Hello, World", "u": "Straße ĳ ǆ", "blank": "  x \t\n", "e": "", "html": "<a href=\"x\">&'</a>",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "el": [], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": [1, 2], "items": "hidden", "x y": None}, "ed": {},
    "people": [{"name": "Ann", "age": 31, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cid", "age": 31, "boss": {"name": "Ann"}}],
    "bos_token": "<s>", "eos_token": "</s>",
}

EXPRESSIONS = r"""
n + 1 ;; n - 10 ;; n * 2 ;; n / 2 ;; n // 2 ;; neg // 2 ;; n % 3 ;; neg % 3 ;; n % neg ;; 2 ** 10 ;; 2 ** -1 ;; -n ** 2 ;; f * 2 ;; f // 1 ;; -7.5 // 2 ;; -7.5 % 2
7 // -2.0 ;; 1e3 ;; 1.5e-7 ;; 1_000 ;; 0x1F ;; 0b101 ;; 0o17 ;; 1e16 ;; 1e15 ;; 123456789012345680.0 ;; 0.1 + 0.2 ;; 1 / 3 ;; 100000.0 * 10 ;; 5e-324 ;; 2 ** 0.5
1e22 ;; 5.684341886080802e-14 ;; 9.5367431640625e-07 ;; 1.7976931348623157e308 ;; true + true ;; t * 3 ;; +t ;; -f ;; 3 - -2 ;; 10 / 5 ;; 10 % 2.5
n == 7 ;; n == 7.0 ;; n != 7 ;; n < 8 ;; 1 < n < 10 ;; 1 < n > 10 ;; 'a' < 'b' ;; 'a' < 'B' ;; [1, 2] < [1, 3] ;; (1, 2) == (1, 2) ;; [1] == (1,) ;; l == [3, 1, 2] ;; d == {'b': 1} ;; true == 1
no == none ;; missing == missing ;; missing == none ;; 'a' == 1 ;; big == 9007199254740993.0 ;; big > 9007199254740992.0
'H' in s ;; 'h' in s ;; 3 in l ;; 9 not in l ;; 'b' in d ;; 'q' in d ;; 'x' in missing ;; (1, 2) in [(1, 2)] ;; '' in '' ;; not n ;; not e ;; not not n
n and s ;; e or 'other' ;; e and x.y ;; n or x.y ;; no or 0 ;; 'a' if n else 'b' ;; 'a' if z else 'b' ;; 'a' if z ;; ('a' if z) is undefined ;; 'x' if no else 'y' if z else 'w'
s ~ n ~ f ~ t ~ no ~ l ;; 'a' 'b' "c" ;; 'it\'s' ;; "tab\tnew\\line\x41\u00e9\U0001F600\101\q" ;; 'a\
b' ;; s * 2 ;; 'ab' * -1 ;; l + [9] ;; l * 2 ;; (1,) + (2,) ;; 'x' + 'y' ;; [] + []
s[0] ;; s[-1] ;; u[4] ;; s[1:4] ;; s[:-3] ;; s[::-1] ;; s[::2] ;; s[-3:] ;; s[5:2] ;; s[100:] ;; s[-100:3] ;; u[::-1] ;; l[0] ;; l[-1] ;; l[1:] ;; l[::-1] ;; l[-2:] ;; l[5:] ;; l[:2:1] ;; l[10] is undefined ;; l['a'] is undefined ;; s[100] is undefined
(1, 2, 3)[1] ;; (1, 2, 3)[::-2] ;; nested[1][1][0] ;; nested.0.1 ;; d['b'] ;; d.b ;; d.items() ;; d['items'] ;; d.missing is undefined ;; d['x y'] ;; d.get('b') ;; d.get('q') ;; d.get('q', 5) ;; d.keys() ;; d.values() ;; d.keys() | list
l ;; d ;; ed ;; el ;; (1,) ;; () ;; (1, 'a', none) ;; [true, none, 1.0, 'x', "it's", 'q"'] ;; ['é', '\n', '\u200b', '\x00', '\x7f', '\u00a0'] ;; {'a': {'b': [1]}} ;; {1: 2, none: 3, 1.5: 4, true: 5} ;; [missing] ;; "a\"'b" ;; ["a\"'b"]
range(5) ;; range(1, 4) ;; range(5, 0, -2) ;; range(3) | list ;; range(10)[2:8:3] ;; range(10)[::-1] ;; range(0) ;; range(5)[-1] ;; range(3) == range(0, 3) ;; 2 in range(3) ;; range(4) | sum ;; range(3).stop
s is string ;; n is string ;; n is number ;; f is number ;; t is number ;; n is integer ;; t is integer ;; f is float ;; n is float ;; t is boolean ;; n is boolean ;; t is true ;; fa is false ;; n is true ;; no is none ;; n is none ;; d is mapping ;; l is mapping
l is iterable ;; s is iterable ;; n is iterable ;; d is iterable ;; missing is iterable ;; l is sequence ;; d is sequence ;; s is sequence ;; n is sequence ;; d.items() is sequence ;; missing is sequence ;; missing is defined ;; n is defined ;; missing is undefined ;; d.q is defined ;; missing is none
n is odd ;; n is even ;; n is divisibleby 7 ;; n is divisibleby(2) ;; not n is divisibleby 7 ;; n is not even ;; 'abc' is lower ;; 'ABC' is upper ;; 'AbC' is upper ;; '1' is lower ;; n is eq 7 ;; n is equalto(7) ;; n is ne 7 ;; n is gt 3 ;; n is lt 3 ;; n is ge 7 ;; n is le 6 ;; n is in l ;; 3 is in(l) ;; n is sameas n if false else 'x'
range is callable ;; s is callable ;; no is sameas none ;; t is sameas true ;; n is sameas true ;; l is sameas l ;; 'upper' is filter ;; 'nope' is filter ;; 'defined' is test ;; (s | safe) is escaped ;; s is escaped ;; s is defined and n is defined ;; missing is defined or n == 7
s | upper ;; s | lower ;; s | title ;; s | capitalize ;; 'hello-world foo_bar (baz) [qux' | title ;; s | length ;; l | length ;; d | length ;; el | count ;; u | length ;; u | upper ;; u | capitalize ;; 'ǆabc' | capitalize ;; 'ŉ ﬁ ΐ' | upper ;; 'İI' | lower ;; 'ΑΣ ΑΣΑ Σ' | lower ;; 'ab' | center(7) ;; 'abc' | center(6)
blank | trim ;; '[' ~ (blank | trim) ~ ']' ;; 'xxaxx' | trim('x') ;; s | replace('l', 'L') ;; s | replace('l', 'L', 2) ;; 'aaa' | replace('', '-') ;; 5 | replace(5, 6) ;; s | first ;; s | last ;; l | first ;; l | last ;; el | first is undefined ;; el | last is undefined ;; d | first ;; (l | first) + 1
l | sort ;; l | sort(reverse=true) ;; ls | sort ;; ls | sort(case_sensitive=true) ;; ls | sort(true) ;; people | sort(attribute='age') | map(attribute='name') | list ;; people | sort(attribute='age,name', reverse=true) | map(attribute='name') | join(',') ;; d | dictsort ;; d | dictsort(reverse=true) ;; {'B': 2, 'a': 1, 'c': 0} | dictsort ;; {'B': 2, 'a': 1} | dictsort(true) ;; {'B': 2, 'a': 1} | dictsort(by='value')
l | join ;; l | join(', ') ;; ls | join('-') ;; people | join('/', attribute='name') ;; s | join('.') ;; el | join('x') ;; [1, none, true] | join(' ') ;; missing | join(',') ;; l | sum ;; people | sum(attribute='age') ;; l | sum(start=10) ;; [[1], [2]] | sum(start=[]) ;; l | min ;; l | max ;; ls | min ;; ls | max ;; people | max(attribute='age') ;; el | min is undefined
people | selectattr('boss') | map(attribute='name') | list ;; people | selectattr('boss', 'defined') | list | length ;; people | rejectattr('boss', 'defined') | map(attribute='name') | list ;; people | selectattr('age', 'equalto', 31) | map(attribute='name') | join(',') ;; people | selectattr('age', '>', 30) | list | length ;; people | selectattr('boss', 'defined') | selectattr('boss.name', 'eq', 'Ann') | list | length ;; people | map(attribute='boss.name', default='-') | list ;; [{'t': ['x']}, {'t': []}] | map(attribute='t.0') | list
[1, 0, 2, none, ''] | select | list ;; [1, 0, 2] | reject | list ;; l | select('odd') | list ;; l | reject('gt', 1) | list ;; l | select('in', [1, 2]) | list ;; ls | map('upper') | list ;; l | map('string') | join('') ;; ls | map('replace', 'a', 'Z') | list ;; missing | map('upper') | list ;; no | select | list ;; l | map('default', 3) | list
ls | unique | list ;; [1, 1.0, 2, true] | unique | list ;; ['a', 'A', 'b'] | unique | list ;; ['a', 'A'] | unique(true) | list ;; people | unique(attribute='age') | map(attribute='name') | list ;; l | reverse | list ;; s | reverse ;; d | reverse | list ;; (l | reverse) is sequence ;; range(7) | batch(3) | list ;; range(7) | batch(3, 'x') | list ;; range(7) | slice(3) | list ;; range(7) | slice(3, 'x') | list ;; el | batch(2) | list
people | groupby('age') | map('first') | list ;; people | groupby('age') | map('last') | map('length') | list ;; (people | groupby('name'))[0].grouper ;; (people | groupby('name'))[1].list[0].age ;; people | groupby('boss.name', default='none') | map('first') | list ;; [{'k': 'b'}, {'k': 'A'}, {'k': 'B'}] | groupby('k') | list
'42' | int ;; ' -7 ' | int ;; '3.9' | int ;; 'x' | int ;; 'x' | int(5) ;; '0x1F' | int(base=16) ;; 'ff' | int(0, 16) ;; '1_000' | int ;; f | int ;; neg | int ;; t | int ;; no | int ;; l | int('bad') ;; '2.5' | float ;; 'x' | float ;; 'x' | float(1.5) ;; n | float ;; '1e3' | float ;; 'inf' | float ;; '-nan' | float ;; '1e400' | float ;; '12345678901234567890.5' | float
f | round ;; 2.675 | round(2) ;; 3.5 | round ;; 0.5 | round ;; 1.5 | round ;; 2.5 | round ;; n | round ;; n | round(2) ;; 2.1 | round(method='ceil') ;; 2.9 | round(method='floor') ;; 2.345 | round(1, 'ceil') ;; neg | abs ;; -2.5 | abs ;; n | abs ;; 1234.5678 | round(2, 'floor') ;; t | round
n | string ;; no | string ;; l | string ;; f | string ;; missing | string ;; s | list ;; d | list ;; missing | list ;; d | items | list ;; missing | items | list ;; s | wordcount ;; 'a-b c_d é' | wordcount ;; 'a b' | default('x') ;; missing | default('x') ;; missing ;; d ;; no | default('x') ;; no | default('x', true) ;; e | default('x', boolean=true) ;; missing.y if missing is defined else 'safe' ;; missing | default(missing2) is undefined
d | tojson ;; l | tojson ;; s | tojson ;; html | tojson ;; u | tojson(ensure_ascii=true) ;; '😀' | tojson(true) ;; '\x7f\x1f\u2028/' | tojson ;; '\x7f' | tojson(ensure_ascii=true) ;; f | tojson ;; no | tojson ;; t | tojson ;; 1e100 | tojson ;; (1, 2) | tojson ;; d | tojson(indent=2) ;; el | tojson(indent=4) ;; {'a': [], 'b': {}} | tojson(indent=1) ;; d | tojson(separators=(',', ':')) ;; {'b': 1, 'a': 2} | tojson(sort_keys=true) ;; nested | tojson(indent=0) ;; d | tojson(indent='--') ;; {1: 1, none: 2, true: 3, 1.5: 4} | tojson ;; {'a': 1} | tojson(none, 2, (', ', ' = '), true)
html ;; e ;; html | escape ;; (html | safe) ~ '<' ;; (html | safe) + '<' ;; '<' + (html | safe) ;; html | forceescape ;; [html | safe] ;; (html | safe | upper) + '&' ;; (html | safe) * 2 ;; (html | safe)[0:2] + '<' ;; (html | safe).upper() + '<' ;; (html | safe).split('=') ;; [1, 2] | truncate(5) ;; n ;; e ;; [1, 2] ;; e
'%s=%d' % ('a', 3) ;; '%s' % l ;; '%5.2f|' % f ;; '%-5s|' % 'ab' ;; '%05d' % n ;; '%+d' % n ;; '%x %X %o' % (255, 255, 8) ;; '%r' % 'a' ;; '%%' % () ;; '%(b)s' % d ;; '%s %s' % ('a', 'b') ;; '%e' % 12345.678 ;; '%g' % 0.0001 ;; '%s' | format('x') ;; '%s-%s' | format(1, 2) ;; '%(k)s' | format(k='v') ;; '%5s|' % no ;; '%.2s|' % 'abcdef' ;; '%d' % 3.9 ;; '% d' % 5 ;; '%*d' % (5, 3) ;; '%i' % true ;; '%#x' % 255 ;; '%10.3e|' % f ;; '%s' % missing ;; '%s' % (missing,)
'{} {}'.format('a', 1) ;; '{0}{1}{0}'.format('x', 'y') ;; '{k}'.format(k='v') ;; '{:>5}|{:<5}|{:^5}|'.format('a', 'b', 'c') ;; '{:05d}'.format(n) ;; '{:.2f}'.format(f) ;; '{:,}'.format(1234567) ;; '{:*^9}'.format('mid') ;; '{{}}'.format() ;; '{!r}'.format('q') ;; '{0[b]} {0[a][1]}'.format(d) ;; '{:x} {:#b} {:e} {:g} {:.1%}'.format(255, 5, 1234.5, 0.5, 0.256) ;; '{:+d} {: d}'.format(3, 3) ;; '{:_}'.format(1234567) ;; '{:_x}'.format(1234567) ;; '{:_b}'.format(200) ;; '{:10}|'.format(3) ;; '{:10}|'.format('a') ;; '{:.3}'.format('abcdef') ;; '{:6.1f}|'.format(3.14159) ;; '{}'.format(none) ;; '{}'.format(l) ;; '{:,.2f}'.format(1234567.891) ;; '{:>08.3f}'.format(3.14159) ;; '{:5}|'.format(true) ;; '{:<05d}|'.format(3) ;; '{:x>05d}|'.format(3) ;; '{:^07.2f}|'.format(1.5) ;; '{:e}'.format(0.0) ;; '{:g} {:g} {:g}'.format(1e20, 1e-7, 100000.0) ;; '{:010}|'.format(-1.5) ;; '{!s:>4}'.format(1)
'{:05}|{:<05}|{:>05}|{:^05}|'.format('abc', 'd', 'e', 'f') ;; '{:x>05}|{:05s}|{:05.2}|'.format('ab', 'cd', 'efgh') ;; '{:+}|{: }|{:-}|{:05}'.format(1.5, 2.5, 3.5, -4.5) ;; 'ΑΣ ΑΣΑ Σ ΝΣ.'.title() ;; 'ΑΣ'.capitalize() ;; 'ΑΣ' | title ;; 'ΑΣΑΣ' | title
s.upper() ;; s.lower() ;; s.title() ;; "it's a tEST".title() ;; s.capitalize() ;; s.split() ;; s.split(',') ;; s.split(', ', 1) ;; ' a  b '.split() ;; 'a,b,c'.rsplit(',', 1) ;; ' a b c '.rsplit(none, 1) ;; ' a b c '.split(none, 1) ;; 'a,b'.split(',', maxsplit=0) ;; 'aXbXc'.split('X', -1) ;; ''.split() ;; ''.split(',') ;; 'a\nb\r\nc\u2028d\x0be\n'.splitlines() ;; 'a\nb\n'.splitlines(true) ;; blank.strip() ;; '[' ~ blank.lstrip() ~ ']' ;; '[' ~ blank.rstrip() ~ ']' ;; 'xyxaxy'.strip('xy') ;; 'éaé'.strip('é')
s.startswith('He') ;; s.startswith(('x', 'H')) ;; s.endswith('ld') ;; s.startswith('lo', 3) ;; s.endswith('Hello', 0, 5) ;; s.startswith('') ;; s.replace('l', '') ;; s.replace('l', '1', 1) ;; 'ab'.replace('', '.') ;; s.find('o') ;; s.find('o', 5) ;; s.find('zz') ;; u.find('e') ;; s.rfind('o') ;; s.rfind('o', 0, 5) ;; s.index('W') ;; s.rindex('l') ;; s.count('l') ;; s.count('') ;; 'aaaa'.count('aa') ;; s.count('l', 3) ;; ','.join(['a', 'b']) ;; 'é'.join('abc') ;; s.removeprefix('Hello') ;; s.removesuffix('ld') ;; s.removeprefix('x') ;; s.partition(', ') ;; s.rpartition('o') ;; s.partition('zz') ;; s.rpartition('zz')
'42'.zfill(5) ;; '-42'.zfill(5) ;; 'ab'.ljust(4) ~ '|' ;; 'ab'.rjust(4, '*') ;; 'ab'.center(5, '-') ;; 'abc'.center(6, '-') ;; '12'.isdigit() ;; '²'.isdigit() ;; '²'.isdecimal() ;; ''.isdigit() ;; 'abc'.isalpha() ;; 'ab1'.isalnum() ;; ' \t'.isspace() ;; 'abc'.islower() ;; 'ABC'.isupper() ;; 'A1'.isupper() ;; 'ªº'.islower() ;; 'é'.isascii() ;; 'é\n'.isprintable() ;; '日本'.isalpha() ;; '½'.isalnum()
l.index(1) ;; l.count(3) ;; (1, 2, 1).count(1) ;; (1, 2).index(2) ;; l.copy() ;; d.copy() ;; d.items() | list ;; d.values() | list | length ;; d.keys() | sort | join(',') ;; l.append is undefined ;; d.update is defined ;; d.pop is undefined ;; l.append ;; s.__class__ is undefined ;; d.__len__ ;; l.__class__
dict(a=1, b='x') ;; dict([('k', 1)], z=2) ;; dict(d, b=5) ;; dict() ;; namespace(a=1).a ;; namespace(a=1) ;; namespace({'k': 2}).k ;; namespace(a=1)['a'] ;; namespace().q is undefined ;; namespace is callable ;; cycler('a', 'b').next() ;; cycler('a', 'b').current ;; joiner() is callable
s | indent ;; 'a\nb\n\nc' | indent ;; 'a\nb\n\nc' | indent(2) ;; 'a\nb\n\nc' | indent(2, true) ;; 'a\nb\n\nc' | indent(2, blank=true) ;; 'a\nb' | indent('> ') ;; '' | indent(2, true) ;; 'a\n' | indent ;; 'hello big world' | truncate(9) ;; 'hello big world' | truncate(9, true) ;; 'hello big world' | truncate(12, leeway=0) ;; 'hello' | truncate(3, true, '', 0) ;; 'foo bar baz qux' | truncate(9, false, '..', 0)
d | attr('b') is undefined ;; d | attr('keys') is callable ;; s | attr('upper') is callable ;; people[0].tags[0] ;; people | length > 2 ;; (people | first).name ;; people[-1].boss.name ;; messages | length ;; messages[0]['role'] ;; messages[1].content | upper ;; messages | map(attribute='role') | join(' ') ;; messages | selectattr('role', 'ne', 'system') | list | length
missing | string ;; missing ~ 'x' ;; missing | length ;; missing | upper ;; missing | trim ;; missing ;; e ;; [missing] | length ;; missing | list ;; missing in [1] ;; missing | first is undefined ;; not missing ;; 1 if t else missing | tojson ;; d.q ~ '' ;; missing == d.q ;; none ~ '' ;; [none] | join ;; true ~ false ;; 1.0 ~ '' ;; -0.0 ;; 1e5 ;; 1e-5 ;; 0.0001 ;; 12345.0
-n | abs ;; n | float | string ;; 'a' ~ 'b' | upper ;; ('a' ~ 'b') | upper ;; (1 + 2) ~ 3 ;; 1 ~ (2 + 3) ;; 2 * 3 ~ 4 ;; 2 ** 3 ** 2 ;; not n == 7 ;; not (n == 7) ;; n is number and s is string ;; (n, s)[0] ;; [n, [s]][1][0] ;; {'k': n}.k ;; {'k': [1, 2]}['k'][1] ;; 'x' if n is defined and n > 5 else 'y' ;; (l | length) * 2 ;; l | length * 2 if false else 3 ;; (1 if t else 2) + 1
html | e ;; (html | e) ~ '<' ;; (html | e | e) ;; n | e ;; [1, 2] | e ;; missing | e ;; missing | d ;; missing | d('x') ;; '%s' | format('x') ;; '{}|'.format('a') ;; 'a' ~ '|' ~ 'b'
"""

STATEMENTS = [
    # white space
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \nb\n  {% endif %}\nc", "a {%- if t -%} b {%- endif -%} c", "a\n  {%+ if t %}b{% endif +%}\n c",
    "{{ n }}\n{{ n }}\n\n", "  {{ n }}  \n", "a \n {{- n -}} \n b", "{# c #}\nx\n  {# c #}\ny {# c #} z", "a {#- c -#} b", "a\n {#+ c +#}\nb", "\n\n{% set x = 1 %}\n\n{{ x }}",
    "{% raw %}{{ x }}{% y %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n x\n  {% endraw %}\ny", "{%raw%}{#x#}{%endraw%}", "{% if t %}{% endif %}\n\nx", "\r\na\r\n{% if t %}\r\nb{% endif %}\rc\r\n",
    "x{%- if t %} y{% endif -%}\n\n z", "\t{% if t %}\n\t\tx\n\t{% endif %}\n", "é {%- if t %}é{% endif %}\u00a0\n", "a\n\u3000{% if t %}b{% endif %}", "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}} }}", "{{ '{{' }}{ { }} %} #}",
    "{%\n  if t\n%}x{%\n endif %}", "a{{\n n\n}}b", "{% if t %}  \n  x{% endif %}", " {% set a = 1 %} {% set b = 2 %} \n{{ a + b }}",
    # if, for
    "{% if z %}a{% elif n %}b{% else %}c{% endif %}", "{% if z %}a{% elif e %}b{% else %}c{% endif %}", "{% if z %}a{% endif %}|", "{% if n and (s or x.y) %}y{% endif %}", "{% if missing %}a{% else %}b{% endif %}",
    "{% for x in l %}{{ x }},{% endfor %}", "{% for x in el %}{{ x }}{% else %}none{% endfor %}", "{% for x in missing %}x{% else %}none{% endfor %}", "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}", "{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a }}{{ b }}{{ c }} {% endfor %}", "{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}", "{% for x in l if x > 9 %}{{ x }}{% else %}no{% endfor %}", "{% for x in l if x is odd %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}", "{% for x in l %}{{ loop }}{% endfor %}", "{% for x in l %}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %}|{% endfor %}", "{% for x in [1] %}{% continue %}{% else %}E{% endfor %}", "{% for x in [1] %}{% break %}{% else %}E{% endfor %}", "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for x in range(3) %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% set y = 0 %}{% for x in range(3) %}{% set y = y + 1 %}{{ y }}{% endfor %}{{ y }}", "{% set ns = namespace(y=0) %}{% for x in range(3) %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}", "{% for x in l %}{% endfor %}{{ x is defined }}",
    "{% set ns = namespace(done=false) %}{% for x in range(6) if not ns.done %}{{ x }}{% if x == 2 %}{% set ns.done = true %}{% endif %}{% endfor %}", "{% for x in range(4) %}{{ loop.last and 'end' or 'go' }}{% endfor %}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for m in messages %}{{ loop.index0 }}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for item in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}{{ loop.depth }}:{{ item.v }}{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}", "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for x in l | sort %}{{ x }}{% endfor %}", "{% for x in l[1:] %}{{ x }}{% endfor %}", "{% for x in (l if t else ls) %}{{ x }}{% endfor %}",
    "{% set g = l | map('string') %}{% for x in g %}{{ x }}{% endfor %}|{% for x in g %}{{ x }}{% endfor %}", "{% set g = l | select('odd') %}{{ g | first }}{{ g | list }}{% if g %}T{% endif %}", "{% set r = l | reverse %}{{ r | join(',') }}|{{ r | join(',') }}",
    "{% set g = l | map('string') %}{{ '1' in g }}{{ g | list }}",
    # set, with, namespace
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}  block {{ n }}\n{% endset %}[{{ x }}]", "{% set x | upper %}ab{% endset %}{{ x }}", "{% set x | replace('a', 'b') | upper %}aXa{% endset %}{{ x }}", "{% set x %}{% set inner = 5 %}{{ inner }}{% endset %}{{ x }}{{ inner is defined }}", "{% if t %}{% set q = 3 %}{% endif %}{{ q }}", "{% if z %}{% set n = 3 %}{% endif %}{{ n }}",
    "{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% set a = 1 %}{% with a = 2 %}{{ a }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w is defined }}", "{% with a, b = (1, 2) %}{{ a }}{{ b }}{% endwith %}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b %}x{% endset %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}", "{% set ns = namespace(l=[]) %}{% for x in l %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}", "{% set ns = namespace(a=1) %}{% set ns.a, q = 5, 6 %}{{ ns.a }}{{ q }}", "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.role %}{% set u2 = ns.t %}{% endfor %}{{ ns.t }}",
    "{% set messages = messages[1:] %}{{ messages | length }}", "{% set x = x | default('fresh') %}{{ x }}", "{% print n, s %}", "{% print n %}",
    # names that a scope sets before it reads them are unset in scopes inside, whatever the conversation has
    "{% for x in l %}{{ n }},{% endfor %}{% set n = 1 %}{{ n }}", "{{ n }}{% for x in l %}{{ n }},{% endfor %}{% set n = 1 %}{{ n }}", "{% macro m() %}[{{ n }}{{ n is defined }}]{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}", "{% if z %}{% set n = 1 %}{% endif %}{% for x in l %}{{ n }}{% endfor %}", "{% if t %}{% set n = 1 %}{% else %}{% set n = 2 %}{% endif %}{% for x in l %}{{ n }}{% endfor %}",
    "{% for x in l %}{% for y in ls %}{{ s }}{% endfor %}{% set s = x %}{{ s }}{% endfor %}{{ s }}", "{% for x in l %}{% set s = x %}{% endfor %}{% for x in l %}{{ s }}{% else %}{% endfor %}", "{% generation %}{{ n }}{% endgeneration %}{% set n = 1 %}", "{% set q %}{{ n }}{% endset %}{% set n = 1 %}{{ q }}{{ n }}", "{% filter upper %}{{ s }}{% endfilter %}{% set s = 'b' %}{{ s }}", "{% with q = n %}{{ q }}{{ n }}{% set n = 4 %}{{ n }}{% endwith %}{{ n }}",
    "{% macro m(n) %}{% for x in l %}{{ n }}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}{% endmacro %}{{ m(5) }}{{ s }}", "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for x in el %}{% else %}{% for y in l %}{{ n }}{% endfor %}{% set n = 1 %}{% endfor %}{{ n }}", "{% set n, s = s, n %}{% for x in l %}{{ n }}{% endfor %}", "{% macro n() %}{{ s }}{% endmacro %}{% for x in l %}{{ n() }}{% endfor %}{% set s = 1 %}{{ n() }}",
    "{% if z %}{% set n = 1 %}{% elif z %}{{ n }}{% elif t %}{% for x in l %}{{ n }}{% endfor %}{% set s = 1 %}{% endif %}{{ n }}{{ s }}", "{% call(x) each(l) %}{{ n }}{% endcall %}{% set n = 1 %}{% macro each(a) %}{{ caller(1) }}{% endmacro %}",
    # a negative constant to the power of what is no constant
    "{{ -1 ** n }},{{ -1 ** 7 }},{{ (-2) ** n }},{{ (1 - 3) ** 2 }},{{ (1 - 3) ** (n - 5) }},{{ neg ** 2 }},{{ -n ** 2 }},{{ 2 ** -1 }},{{ -2.0 ** (n - 5) }},{{ -1 ** n ** 2 }}",
    # a recursive loop is text made apart
    "ab{% for x in nested recursive %}cd{% generation %}ef{% endgeneration %}{% endfor %}gh{% generation %}ij{% endgeneration %}", "{{ 'x' is filter }}{{ 5 is filter }}{{ none is test }}", "{{ [1] is filter }}", "{{ d is test }}",
    "{{ strftime_now('%Y-' * 300) | length }}{{ strftime_now('%1500d') | length }}{{ strftime_now('%9999d') | length }}{{ strftime_now('é%%' * 200 ~ '%f') | length }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}|{{ varargs | join(',') }}{% endmacro %}{{ m(*l) }}{{ m(**{'a': 9}) }}", "{% macro m() %}{{ n }}{% set n = 5 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro wrap() %}<{{ caller() }}>{% endmacro %}{% call wrap() %}in {{ n }}{% endcall %}", "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(l) %}{{ i }}={{ x }} {% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro f(n) %}{% if n > 1 %}{{ n }}*{{ f(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ f(5) }}", "{% macro a() %}A{% endmacro %}{% macro b() %}{{ a() }}B{% endmacro %}{{ b() }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('a') | upper ~ m('b') }}", "{% macro m() %}  x\n{% endmacro %}[{{ m() }}][{{ m() | trim }}]", "{% macro m() %}{{ v }}{% endmacro %}{% set v = 5 %}{{ m() }}", "{% macro m(v) %}{% for i in range(v) %}{{ m.name }}{{ i }}{% endfor %}{% endmacro %}{{ m(2) }}", "{% if t %}{% macro q() %}Q{% endmacro %}{% endif %}{{ q() }}", "{% for i in range(2) %}{% macro q() %}{{ i }}{% endmacro %}{{ q() }}{% endfor %}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'o') | upper %}banana{% endfilter %}", "{% filter trim %}  x  {% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}", "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ raise_exception is defined }}{{ strftime_now is defined }}{{ strftime_now('%%-x') }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}", "{{ strftime_now('%Y') | length }}{{ strftime_now('') }}",
    # generation
    "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}", "é{% generation %}😀{% endgeneration %}x{% generation %}{% endgeneration %}{%- generation -%} y {%- endgeneration -%}", "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}", "ab{% macro m() %}cd{% generation %}ef{% endgeneration %}gh{% endmacro %}{{ m() }}ij{% set x %}kl{% generation %}mn{% endgeneration %}{% endset %}{{ x }}", "é{% macro m() %}éé{% generation %}üü{% endgeneration %}x{% endmacro %}{{ m() }}zz", "{% macro m() %}abc{% generation %}de{% endgeneration %}{% endmacro %}{{ m() }}", "é{% set x %}é{% generation %}lonely{% endgeneration %}{% endset %}é", "{% for m in messages %}{% generation %}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}",
    # errors that the reference has too
    "{{ missing.x }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ no.x.y }}", "{{ n() }}", "{{ s.nope() }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' < 1 }}", "{{ no < 1 }}", "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ [1] in d }}", "{{ {[1]: 2} }}", "{{ n | length }}", "{{ n | join }}", "{{ no | list }}", "{{ l.append(4) }}", "{{ d.update({}) }}", "{{ d.pop('b') }}", "{{ raise_exception('stop ' ~ n) }}", "{% for a, b in l %}{% endfor %}", "{% set a, b = (1, 2, 3) %}", "{% set s.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{{ namespace(_a=1) }}",
    "{{ s.split('') }}", "{{ s.index('q') }}", "{{ l.index(99) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % 'x' }}", "{{ '%s' % (1, 2) }}", "{{ '{}'.format() }}", "{{ '{x}'.format() }}", "{{ '{' .format(1) }}", "{{ '{:+}'.format('a') }}", "{{ '{: }'.format('a') }}", "{{ '{:-}'.format('a') }}", "{{ '{:#}'.format('a') }}", "{{ '{:=5}'.format('a') }}", "{{ '%h\\x00' % 5 }}", "{{ [1, 'a'] | sort }}", "{{ ['a'] | sum }}", "{{ missing | tojson }}", "{{ namespace() | tojson }}", "{{ range(1000000) }}", "{{ range(1, 2, 0) }}", "{{ 'x' | nope }}", "{{ n is nope }}", "{{ ', '.join(l) }}", "{{ missing | int }}", "{{ d | dictsort(by='x') }}", "{{ l | round }}", "{{ none | first }}", "{{ n | items | list }}", "{{ d[:1] }}", "{{ no[0:1] }}", "{{ l | map('nope') | list }}", "{{ l | map | list }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ s(1) }}", "{% call n() %}{% endcall %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "{{ loop.index }}", "{% for x in l %}{{ loop(x) }}{% endfor %}", "{{ joiner(1, 2, 3) }}", "{{ -s }}", "{{ -missing }}", "{{ missing | abs }}", "{% for x in 5 %}{% endfor %}", "{% for x in no %}{% endfor %}", "{{ s.upper(1) }}", "{{ s.replace('a') }}",
    "{{ n", "{% if %}", "{% if t %}", "{% endif %}", "{% for x l %}{% endfor %}", "{{ 'a }}", "{{ (1 }}", "{{ 1 ) }}", "{{ [1, }}", "{{ a b }}", "{% nope %}", "{{ }}", "{# open", "{% raw %}x", "{{ 1 + }}", "{% set 1 = 2 %}", "{% set x %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{% break %}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{{ x is is y }}", "{% set none = 1 %}", "{{ a.'b' }}", "{{ ! }}", "{{ 'a\\xZZ' }}", "{% if a = b %}{% endif %}", "{{ [1 2] }}", "{{ {1} }}", "{{ not }}", "{% else %}", "{% for x in l %}{% elif %}{% endfor %}", "{{ x | }}", "{{ x is }}", "{% include %}",
]

# Rendered by the reference, refused here; with what is said.
UNSUPPORTED = [
    ("{{ 9223372036854775807 + 1 }}", "beyond 64 bits"), ("{{ 2 ** 64 }}", "beyond 64 bits"), ("{{ 99999999999999999999 }}", "beyond 64 bits"), ("{{ big / 3 }}", "2**53"),
    ("{{ '99999999999999999999' | int }}", "beyond 64 bits"), ("{{ (-8) ** 0.5 }}", "complex"), ("{{ s | urlize }}", "the filter 'urlize'"), ("{{ s | wordwrap(3) }}", "the filter 'wordwrap'"),
    ("{{ d | pprint }}", "the filter 'pprint'"), ("{{ s.swapcase() }}", "'swapcase' of a str"), ("{{ s.encode() }}", "'encode' of a str"), ("{{ n.bit_length() }}", "'bit_length' of a int"),
    ("{{ l | map('upper') }}", "printing a generator"), ("{{ lipsum() }}", "'lipsum'"), ("{% block a %}x{% endblock %}", "the statement 'block'"), ("{% autoescape true %}{{ html }}{% endautoescape %}", "the statement 'autoescape'"),
    ("{{ 1234.5 | round(-2) }}", "rounding to tens"), ("{{ '{:{}}'.format('a', 5) }}", "a field inside"), ("{{ range }}", "printing a function"), ("{{ s.upper }}", "printing a method"), ("{{ 'a' is sameas 'a' }}", "the identity"), ("{{ '%c' % 65 }}", "the format character"), ("{{ d.fromkeys([1]) }}", "'fromkeys' of a dict"), ("{{ (html | e).join(ls) }}", "'join' of a text marked safe"),
]


def check(template, extra=None, prompt=False):
    """What the reference makes of a template: (text, spans) or None when it refuses."""
    conversation = dict(VARIABLES if extra is None else extra)
    messages = conversation.pop("messages", MESSAGES)
    messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
    try:
        compiled = _compile_jinja_template(template)
        return _render_with_assistant_indices(compiled, _alias_reasoning_fields(messages), None, None, prompt, **conversation)
    except Exception:  # noqa: BLE001 - whatever it is, it is refused
        return None


def byte_spans(text, spans):
    return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in spans]


def vector(template, extra=None, prompt=False, name=None):
    result = check(template, extra, prompt)
    entry = {"template": template} if name is None else {"preset": name}
    if extra is not None:
        entry["conversation"] = extra
    if prompt:
        entry["prompt"] = True
    if result is None:
        entry["error"] = True
    else:
        entry["text"] = result[0]
        entry["spans"] = byte_spans(*result)
    return entry


def presets():
    """The templates of src/chat/presets.c, as the compiler would join them."""
    import ast
    import re

    with open(PRESETS, encoding="utf-8") as file:
        source = file.read()
    macros, found = {}, {}
    literal = r'"(?:[^"\\]|\\.)*"'

    def joined(part):
        text = ""
        for token in re.findall(literal + r"|\b[A-Z]+\b", part):
            text += ast.literal_eval(token) if token.startswith('"') else macros.get(token, "")
        return text

    for match in re.finditer(r"#define (\w+) ((?:.*\\\n)*.*)\n", source):
        macros[match.group(1)] = joined(match.group(2))
    for match in re.finditer(r"static const char (\w+)\[\] =\n((?:    .*\n)+)", source):
        found[match.group(1)] = joined(match.group(2))
    return found


CHATS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": " Hi \n"}, {"role": "assistant", "content": "\n Grüße 😀 "}],
    [{"role": "system", "content": " sys "}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
    [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": None}],
    [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": " two"}]}, {"role": "assistant", "content": ["x", "y"]}],
    [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "assistant", "content": "first"}],
]


def main():
    vectors, seen = [], set()
    for line in EXPRESSIONS.strip("\n").replace("\\\n", "\0").split("\n"):
        for expression in line.replace("\0", "\\\n").split(" ;; "):
            for template in ("{{ " + expression + " }}",):
                if template not in seen:
                    seen.add(template)
                    vectors.append(vector(template))
    vectors += [vector(template) for template in STATEMENTS]
    for template, says in UNSUPPORTED:
        assert check(template) is not None, template
        vectors.append({"template": template, "unsupported": says})
    for name, template in sorted(presets().items()):
        for chat in CHATS:
            for prompt in (False, True):
                for tokens in ({"bos_token": "<s>", "eos_token": "</s>"}, {}):
                    vectors.append(vector(template, {"messages": chat, **tokens}, prompt, name))
    refused = [v["template"] for v in vectors if "error" in v and "template" in v]
    unexpected = [template for template in refused if template not in STATEMENTS]
    if unexpected:
        sys.exit("refused by the reference, but not meant to be: %r" % unexpected)
    with open(os.path.join(HERE, "..", "chat", "vectors.json"), "w", encoding="utf-8") as file:
        file.write("{\n")
        file.write('"messages": %s,\n"variables": %s,\n"vectors": [\n' % (json.dumps(MESSAGES, ensure_ascii=False), json.dumps(VARIABLES, ensure_ascii=False)))
        file.write(",\n".join(json.dumps(v, ensure_ascii=False) for v in vectors))
        file.write("\n]\n}\n")
    print(len(vectors), "vectors,", sum("error" in v for v in vectors), "of them refused by the reference")


if __name__ == "__main__":
    main()
