from langchain_openai import ChatOpenAI
from langgraph.graph import END, MessagesState, StateGraph


async def agent(task, client):
    model = ChatOpenAI(model="policy", base_url=client.base_url, api_key=client.api_key)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def act(state):
        observation, done = await client.step(state["messages"][-1].text)
        return {"messages": [] if done else [("user", observation)]}

    graph = StateGraph(MessagesState).add_node(think).add_node(act).set_entry_point("think").add_edge("think", "act")
    graph.add_conditional_edges("act", lambda state: "think" if state["messages"][-1].type == "human" else END)
    first = {"messages": [("user", await client.reset())]}
    await graph.compile().ainvoke(first, {"recursion_limit": 1000})
