#include "tests/chat/answer/goldens.h"

namespace moed::chat {

const std::vector<Golden>& Goldens() {
  static const std::vector<Golden> kGoldens = {
      {"plain", "Just <think>text</think> {\"name\": 1}\n", "text(Just <think>text</think> {\"name\": 1}\n)"},
      {"think", "<think>\n2 + 2\nis 4\n</think>\n\nIt is **4**.", "reasoning(2 + 2\nis 4) text(It is **4**.)"},
      {"think", "2 + 2\nis 4\n</think>\n\nIt is 4.", "reasoning(2 + 2\nis 4) text(It is 4.)", true},
      {"think", "<think>\nagain</think>x", "reasoning(again) text(x)", true},
      {"think", "<think>never closed <thi", "reasoning(never closed <thi)"},
      {"think", "Say <think>a</think> b", "text(Say <think>a</think> b)"},
      {"think", "<tool_call>{\"name\": \"clock\"}</tool_call>", "text(<tool_call>{\"name\": \"clock\"}</tool_call>)"},

      {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Köln\", \"days\": 2}}\n</tool_call>",
       "call(get_weather, , {\"place\": \"Köln\", \"days\": 2})"},
      {"hermes",
       "<think>\nTwo tools.\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": "
       "\"a}\\\"b\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>\n",
       "reasoning(Two tools.) text(Let me look.) call(get_weather, , {\"place\": \"a}\\\"b\"}) call(clock, , {})"},
      {"hermes",
       "<tool_call>{\"arguments\": {\"a\": [1, 2.5e3]}, \"id\": \"x1\", \"k\": -1, \"name\": \"cl\\u006fck\"}</tool_call>done",
       "call(clock, x1, {\"a\": [1, 2.5e3]}) text(done)"},
      {"hermes", "<tool_call>{\"name\": \"clock\"}</tool_call>", "call(clock, , {})"},
      {"hermes", "a <tool_call> is a marker, <tool_call>[1]</tool_call>",
       "text(a <tool_call> is a marker, <tool_call>[1]</tool_call>)"},
      {"hermes", "<tool_call> <tool_call>{\"name\": \"clock\"}</tool_call>", "text(<tool_call>) call(clock, , {})"},
      {"hermes", "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": oops}}</tool_call>",
       "call(clock, , {\"a\": ) text(oops}}</tool_call>)"},
      {"hermes", "<tool_call>{\"name\": \"clock\", \"arguments\": {}} and so on", "call(clock, , {}) text( and so on)"},

      {"qwen-xml",
       "<tool_call>\n<function=get_weather>\n<parameter=place>\nKöln \"am\" "
       "Rhein\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
       "<parameter=where>\n{\"lat\": 50.9, \"lon\": null}\n</parameter>\n<parameter=ok>\nTrue\n</parameter>\n"
       "<parameter=maybe>\nNone\n</parameter>\n</function>\n</tool_call>",
       "call(get_weather, , {\"place\": \"Köln \\\"am\\\" Rhein\", \"days\": 2, \"where\": {\"lat\": 50.9, \"lon\": null}, "
       "\"ok\": "
       "true, \"maybe\": null})"},
      {"qwen-xml",
       "Two tools are needed.\n</think>\n\nLet me "
       "look.\n\n<tool_call>\n<function=clock>\n</function>\n</tool_call>\n<tool_call>\n"
       "<function=write>\n<parameter=text>\n\n  if (a < b) {\n  }\n\n</parameter>\n</function>\n</tool_call>",
       "reasoning(Two tools are needed.) text(Let me look.) call(clock, , {}) call(write, , {\"text\": \"\\n  if (a < b) {\\n  "
       "}\\n\"})",
       true},
      {"qwen-xml", "<function=get_weather><parameter=place>A</parameter><parameter=days>two</parameter></function>",
       "call(get_weather, , {\"place\": \"A\", \"days\": \"two\"})"},
      {"qwen-xml", "A <tool_call> then.\n<tool_call>\n<function=clock>\n</function>\n</tool_call>\n</think>\n\nDone.",
       "reasoning(A <tool_call> then.) call(clock, , {}) text(Done.)", true},
      {"qwen-xml", "As <tool_call>\n<function=example>\n</function>\n</tool_call> is.</think>Done.",
       "reasoning(As <tool_call>\n<function=example>\n</function>\n</tool_call> is.) text(Done.)", true},
      {"qwen-xml", "I look.\n<function=clock>\n</function>\n</tool_call>", "text(I look.) call(clock, , {})"},
      {"qwen-xml", "<function=clock>\n</function>\n</tool_call>\n<function=clock>\n</function>\n</tool_call>\n",
       "call(clock, , {}) call(clock, , {})"},
      {"qwen-xml", "Close it with </tool_call> then.", "text(Close it with </tool_call> then.)"},
      {"qwen-xml",
       "<tool_call>\n<function=get_weather>\n<parameter=place>\nA\n<parameter=days>\n2\n<parameter=x>\n\n B\n\n</function>\n"
       "</tool_call>",
       "call(get_weather, , {\"place\": \"A\", \"days\": 2, \"x\": \"\\n B\\n\"})"},
      {"qwen-xml", "<function=clock>\n<parameter=command>\nls\n</function>", "call(clock, , {\"command\": \"ls\"})"},
      {"qwen-xml", "<function=clock>\n<parameter=command>\nls <parameter=x> </function>\n</parameter>\n</function>",
       "call(clock, , {\"command\": \"ls <parameter=x> </function>\"})"},
      {"qwen-xml", "Write <function=name> and <parameter=x>.", "text(Write <function=name> and <parameter=x>.)"},
      {"qwen-xml", "<tool_call>\n<function=clock>\n<parameter=a>\n1\n</parameter>\nhm</function>",
       "call(clock, , {\"a\": \"1\") text(\nhm</function>)"},

      {"glm",
       "I must look.</think><tool_call>get_weather<arg_key>place</arg_key><arg_value>Köln\n</arg_value><arg_key>list</arg_key>"
       "<arg_value>[1, [2]]</arg_value></tool_call>",
       "reasoning(I must look.) call(get_weather, , {\"place\": \"Köln\\n\", \"list\": [1, [2]]})", true},
      {"glm",
       "\n<think>a</think>\n<tool_call>clock\n</tool_call>\n<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>3</"
       "arg_value>"
       "\n</tool_call>",
       "reasoning(a) call(clock, , {}) call(get_weather, , {\"days\": 3})"},
      {"glm", "I must look.\n<tool_call>get_weather<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
       "reasoning(I must look.) call(get_weather, , {\"days\": 3})", true},
      {"glm", "As <tool_call>example</tool_call> is.</think>Done.",
       "reasoning(As <tool_call>example</tool_call> is.) text(Done.)", true},
      {"glm", "a <tool_call>is no call</tool_call>", "text(a <tool_call>is no call</tool_call>)"},

      {"minimax",
       "<think>\nhm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"place\">A & "
       "B</parameter>\n"
       "<parameter name=\"ok\">false</parameter>\n</invoke>\n<invoke name=\"clock\">\n</invoke>\n</minimax:tool_call>",
       "reasoning(hm) call(get_weather, , {\"place\": \"A & B\", \"ok\": false}) call(clock, , {})"},

      {"minimax",
       "hm\n<minimax:tool_call>\n<invoke name=\"clock\">\n</invoke>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>\n</think>\n\nDone.",
       "reasoning(hm) call(clock, , {}) call(get_weather, , {\"days\": 3}) text(Done.)", true},

      {"deepseek-dsml",
       "why</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"place\" "
       "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"x\" "
       "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
       "</｜DSML｜tool_calls>",
       "reasoning(why) call(get_weather, , {\"place\": \"12\", \"x\": [1]})", true},

      {"deepseek-dsml",
       "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"clock\">\n<｜DSML｜parameter name=\"x\" string=\"false\">"
       "[\"</｜DSML｜parameter>\"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "call(clock, , {\"x\": [\"</｜DSML｜parameter>\"]})"},

      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"place\": "
       "\"Köln\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>"
       "clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "call(get_weather, , {\"place\": \"Köln\"}) call(clock, , {})"},
      {"deepseek",
       "hm\n</think>\n\nI "
       "look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"place\": \"A\"}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```json\n{}\n```<｜tool▁call▁end｜><"
       "｜tool▁calls▁end｜>",
       "reasoning(hm) text(I look.) call(get_weather, , {\"place\": \"A\"}) call(clock, , {})", true},
      {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜>oops",
       "call(clock, , {}) text(oops)"},

      {"kimi",
       "why<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "reasoning(why) call(clock, functions.clock:0, {})", true},
      {"kimi",
       "<think>why</think>I "
       "look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
       "{\"place\": \"A\"}<|tool_call_end|><|tool_call_begin|>functions.clock:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "reasoning(why) text(I look.) call(get_weather, functions.get_weather:0, {\"place\": \"A\"}) call(clock, "
       "functions.clock:1, {})"},

      {"kimi",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions_get_weather_0<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_call_begin|>functionsclock:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_call_begin|>clock_2<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_call_begin|>functions_nobody_3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
       "call(get_weather, functions_get_weather_0, {}) call(clock, functionsclock:1, {}) call(clock, clock_2, {}) "
       "call(functions_nobody_3, functions_nobody_3, {})"},

      {"mistral",
       "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"place\": \"A\"}, \"id\": \"abcdefghi\"}, {\"name\": "
       "\"clock\", "
       "\"arguments\": {}}]",
       "call(get_weather, , {\"place\": \"A\"}) call(clock, , {})"},
      {"mistral",
       "[THINK]hm[/THINK]I look.[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"place\": \"A\"}[TOOL_CALLS]clock[ARGS]{}",
       "reasoning(hm) text(I look.) call(get_weather, abcdefghi, {\"place\": \"A\"}) call(clock, , {})"},
      {"mistral", "[TOOL_CALLS]clock{}", "call(clock, , {})"},
      {"mistral", "[TOOL_CALLS] and [THINK] are markers", "text([TOOL_CALLS] and [THINK] are markers)"},

      {"llama", "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"A\"}}", "call(get_weather, , {\"place\": \"A\"})"},
      {"llama",
       "<|python_tag|>{\"type\": \"function\", \"name\": \"clock\", \"parameters\": {}}; {\"name\": \"clock\", \"parameters\": "
       "{\"a\": 1}}",
       "call(clock, , {}) call(clock, , {\"a\": 1})"},
      {"llama", "\n{\"name\": \"Ada\", \"parameters\": {}}", "text(\n{\"name\": \"Ada\", \"parameters\": {}})"},
      {"llama", "<|python_tag|>brave_search.call(query=\"x\")", "text(<|python_tag|>brave_search.call(query=\"x\"))"},
      {"llama", "See {\"name\": \"clock\", \"parameters\": {}}", "text(See {\"name\": \"clock\", \"parameters\": {}})"},

      {"hy",
       "<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>place</arg_key>\n<arg_value>Köln</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>clock<tool_sep>\n</tool_call>\n</tool_calls>",
       "call(get_weather, , {\"place\": \"Köln\", \"days\": 2}) call(clock, , {})"},
      {"hy-open",
       "why</think:opensource>I look.<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n"
       "<arg_key:opensource>ok</arg_key:opensource>\n<arg_value:opensource>true</arg_value:opensource>\n"
       "</tool_call:opensource>\n</tool_calls:opensource>",
       "reasoning(why) text(I look.) call(get_weather, , {\"ok\": true})", true},

      {"llama4", "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"A\"}}{\"name\": \"clock\", \"parameters\": {}}",
       "call(get_weather, , {\"place\": \"A\"}) call(clock, , {})"},
      {"llama4", "<|python_start|>{\"name\": \"clock\", \"parameters\": {}}<|python_end|>", "call(clock, , {})"},
      {"llama4", "<|python_start|>I look.<|python_end|>{\"name\": \"clock\", \"parameters\": {}}",
       "text(I look.) call(clock, , {})"},
      {"llama4",
       "[get_weather(place='It\\'s \"A\"\\n', days=-2, ok=True, where={'lat': 50.9, \"lon\": null}, list=[1, (2,), 'é\\x41'], "
       "maybe=None), clock()]",
       "call(get_weather, , {\"place\": \"It's \\\"A\\\"\\n\", \"days\": -2, \"ok\": true, \"where\": {\"lat\": 50.9, \"lon\": "
       "null}, "
       "\"list\": [1, [2], \"é\\u0041\"], \"maybe\": null}) call(clock, , {})"},
      {"llama4", "<|python_start|>[clock()]<|python_end|>", "call(clock, , {})"},
      {"llama4", "[{\"name\": \"clock\", \"parameters\": {\"a\": 1}}, {\"name\": \"clock\"}]",
       "call(clock, , {\"a\": 1}) call(clock, , {})"},
      {"llama4", "[1](x), [sin(x=1)] and {}", "text([1](x), [sin(x=1)] and {})"},
      {"llama4", "See [clock()]", "text(See [clock()])"},

      {"lfm2", "<|tool_call_start|>[get_weather(place=\"A\", days=2), clock()]<|tool_call_end|>I look.",
       "call(get_weather, , {\"place\": \"A\", \"days\": 2}) call(clock, , {}) text(I look.)"},
      {"lfm2", "<think>why</think>I look.<|tool_call_start|>[mul(a = 1.5e3, b='', c=[],)]<|tool_call_end|>",
       "reasoning(why) text(I look.) call(mul, , {\"a\": 1.5e3, \"b\": \"\", \"c\": []})"},
      {"lfm2", "<|tool_call_start|>[clock(a=1, b=oops)]<|tool_call_end|>",
       "call(clock, , {\"a\": 1, \"b\": ) text(oops)]<|tool_call_end|>)"},
      {"lfm2", "A <|tool_call_start|>[clock]<|tool_call_end|>", "text(A <|tool_call_start|>[clock]<|tool_call_end|>)"},

      {"command",
       "<|START_THINKING|>why<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", "
       "\"parameters\": {\"place\": \"A\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"clock\", \"parameters\": "
       "{}}\n]<|END_ACTION|>",
       "reasoning(why) call(get_weather, , {\"place\": \"A\"}) call(clock, , {})"},
      {"command", "why<|END_THINKING|><|START_TEXT|>It is 4.<|END_TEXT|>", "reasoning(why) text(It is 4.)", true},
      {"command", "<|START_RESPONSE|>It is 4.<|END_RESPONSE|>\n", "text(It is 4.)"},

      {"solar",
       "<|think|>why<|end|><|begin|>assistant<|content|>I "
       "look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1B2c3D4e5"
       "<|tool_call:name|>get_weather<|tool_call:args|>{\"place\": \"A\"}<|tool_call:end|><|tool_call:begin|>f"
       "<|tool_call:name|>clock<|tool_call:args|>{}<|tool_call:end|>",
       "reasoning(why) text(I look.) call(get_weather, a1B2c3D4e5, {\"place\": \"A\"}) call(clock, f, {})"},
      {"solar", "<|tool_calls|><|tool_call:begin|>f<|tool_call:name|>clock<|tool_call:args|>{}<|tool_call:end|><|calls|>",
       "call(clock, f, {})"},
      {"solar", "<|content|>It is 4.<|end|>", "text(It is 4.)"},

      {"gemma4",
       "<|channel>thought\nwhy\n<channel|>I "
       "look.<|tool_call>call:get_weather{days:2,list:[1,<|\"|><b>\"<|\"|>],ok:true,place:<|\"|>A, "
       "\\n}<|\"|>,where:{lat:50.9,lon:null}}<tool_call|><|tool_call>call:clock{}<tool_call|>",
       "reasoning(why) text(I look.) call(get_weather, , {\"days\": 2, \"list\": [1, \"<b>\\\"\"], \"ok\": true, \"place\": \"A, "
       "\\\\n}\", \"where\": {\"lat\": 50.9, \"lon\": null}}) call(clock, , {})"},
      {"gemma4", "why<channel|><|tool_call>call:clock{\"a\":\"b\", <|\"|>c<|\"|>: None}<tool_call|>",
       "reasoning(why) call(clock, , {\"a\": \"b\", \"c\": null})", true},
      {"gemma4", "<|tool_call>call:clock{a:'it\\'s <|\"|>', b='c', 'd': {e=1, 'f'=[]}}<tool_call|>",
       "call(clock, , {\"a\": \"it's <|\\\"|>\", \"b\": \"c\", \"d\": {\"e\": 1, \"f\": []}})"},
      {"gemma4", "<|tool_call>call:clock{a:1,b:oops}<tool_call|>", "call(clock, , {\"a\": 1, \"b\": ) text(oops}<tool_call|>)"},

      {"granite",
       "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"place\": \"A\"}}, {\"name\": \"clock\", \"arguments\": {}}]",
       "call(get_weather, , {\"place\": \"A\"}) call(clock, , {})"},
      {"granite", "<think>why</think>\n<response>It is 4.</response>", "reasoning(why) text(It is 4.)"},
      {"granite", "<tool_call>[{\"name\": \"clock\"}] <|tool_call|>[]", "call(clock, , {}) text(<|tool_call|>[])"},

      {"hunyuan",
       "<think>\nwhy\n</think>\n<answer>\nI look.\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"place\": \"A\"}}, "
       "{\"name\": \"clock\", \"arguments\": {}}]</tool_calls>\n</answer>",
       "reasoning(why) text(I look.) call(get_weather, , {\"place\": \"A\"}) call(clock, , {})"},
      {"hunyuan", "<answer>\nWrite <answer>x</answer> \n.\n</answer>\n", "text(Write <answer>x</answer> \n.)"},

      {"hunyuan", "<think>\n\n</think>\n助手：In which place?", "text(In which place?)"},

      {"ernie", "why\n</think>\n\n<response>\nIt is 4.\n</response>\n", "reasoning(why) text(It is 4.)", true},
      {"ernie", "why\n</think>\n\n\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>\n",
       "reasoning(why) call(clock, , {})", true},

      {"harmony", "<|channel|>analysis<|message|>2 + 2 < 5<|end|><|start|>assistant<|channel|>final<|message|>It is 4.",
       "reasoning(2 + 2 < 5) text(It is 4.)"},
      {"harmony",
       "<|channel|>analysis<|message|>look<|end|><|start|>assistant<|channel|>commentary<|message|>I "
       "look.<|end|><|start|>assistant<|channel|>"
       "commentary to=functions.get_weather <|constrain|>json<|message|>{\"place\":\"Köln\"}<|call|>",
       "reasoning(look) text(I look.) call(get_weather, , {\"place\":\"Köln\"})"},
      {"harmony", " to=functions.clock<|channel|>commentary json<|message|>{}", "call(clock, , {})"},
      {"harmony", "No channels at all", "text(No channels at all)"},
      {"harmony", "<|channel|>commentary to=functions.clock<|message|>now<|call|>", "text(now)"},
      {"harmony", "<|channel|>commentary to=assistant<|message|>hello<|end|>", "text(hello)"},
      {"harmony", "<|channel|>commentary to=functions.nobody<|message|><|call|>", ""},
      {"harmony", "<|channel|>commentary to=functions.clock<|message|>\n<|ca", "text(<|ca)"},
      {"harmony", "<|channel|>commentary to=functions.clock<|message|> <|call|><|start|>assistant<|channel|>final<|message|>So.",
       "call(clock, , {}) text(So.)"},
      {"harmony", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.clock<|channel|>commentary<|message|>",
       "reasoning(Hm.) call(clock, , {})"},

      // Cut before the call begins.
      {"hermes", "Let me see.\n<tool_call>\n{\"name\": \"get_wea", "text(Let me see.)"},
      {"hermes", "Let me see.\n<tool_ca", "text(Let me see.\n<tool_ca)"},
      {"hermes", "<tool_call>\n{\"name\": \"clock\"}\n</tool_call>\n<tool_call>\n{\"na", "call(clock, , {})"},
      {"qwen-xml", "<tool_call>\n<function=get_weather>\n", ""},
      {"qwen-xml", "Let me see. <function=get_wea", "text(Let me see.)"},
      {"glm", "<tool_call>get_weather\n<arg_k", ""},
      {"minimax", "<minimax:tool_call>\n<invoke name=\"get_weather\">", ""},
      {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>", ""},
      {"kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0", ""},
      {"mistral", "[TOOL_CALLS]get_weather", ""},
      {"mistral", "[TOOL_CALLS][{\"name\": \"clock\", \"argum", ""},
      {"llama", "<|python_tag|>{\"na", ""},
      {"llama", "{\"name\": \"get_weather\", \"param", ""},
      {"llama", "{\"name\": \"Ann\", \"age\": 4", "text({\"name\": \"Ann\", \"age\": 4)"},
      {"hy", "<tool_calls>\n<tool_call>get_weather<tool_s", ""},
      {"gemma4", "I look.<|tool_call>call:get_wea", "text(I look.)"},
      {"hunyuan", "I look.</answer><tool_calls>[{\"na", "text(I look.)"},
      {"hunyuan", "I look.</answer>x", "text(I look.</answer>x)"},
      {"solar", "<|think|>why<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>ab", "reasoning(why)"},
      {"llama4", "[get_weather", "text([get_weather)"},
      {"lfm2", "<|tool_call_start|>[get_wea", ""},
      {"harmony", "<|channel|>commentary to=functions.get_wea", ""},
  };
  return kGoldens;
}

}  // namespace moed::chat
